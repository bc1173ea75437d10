/**
 * What messages have made of runs and pools, kept in the bucket beside what was stored: a Store that is lost takes no pause, stop,
 * cancel, delete or budget with it.
 */
import {z} from 'zod';
import {parseJson, provisioning} from '../../contracts/schemas.ts';
import type {Pool} from '../../domain/fleet/pool.ts';
import {ordersObject, parseWorkerName, paths, poolObject} from '../../domain/names.ts';
import type {Run} from '../../domain/run/run.ts';
import {newWorker} from '../../domain/worker/worker.ts';
import type {Document} from '../../ports.ts';
import {readText} from '../runs/run-manifest.ts';
import {abreast} from './concurrency.ts';
import type {Deps} from './deps.ts';
import {HELD, poolRecords, runRecords, unlessBroken, workerRecords} from './documents.ts';

const MAX_BYTES = 8 * 1024 * 1024;
const ATTEMPTS = 5;

const count = z.number().int().min(0);
const money = {budget_usd: z.number().nullable(), spent_usd: z.number().min(0), version: count};

const runOrders = z.object({
  schema: z.literal('gleaner/1'),
  run: z.string(),
  status: z.enum(['active', 'paused', 'cancelled']),
  reason: z.string().nullable(),
  priority: z.number().int(),
  ...money,
  cancelled_streams: z.array(z.string()),
  stopped_at: z.iso.datetime().nullable(),
});

const poolOrders = z.object({
  schema: z.literal('gleaner/1'),
  pool: z.string(),
  zones: z.array(z.string()).min(1),
  workers_per_zone: count,
  provisioning: provisioning.default('node'),
  ...money,
  /** Workers that a message deleted and none has recreated. */
  held: z.array(z.string()),
});

export type RunOrders = z.infer<typeof runOrders>;
type PoolOrders = z.infer<typeof poolOrders>;

/** Throws `Rejected` when somebody spoilt the object: a run that may have been stopped is not begun again by that. */
export async function readOrders(deps: Deps, run: string): Promise<RunOrders | undefined> {
  const name = ordersObject(run);
  const text = await readText(deps, name, MAX_BYTES);
  return text === undefined ? undefined : parseJson(runOrders, text, name);
}

/** What the run's document says now. The message that led here counts as done when this has returned. */
export async function keepRunOrders(deps: Deps, run: string): Promise<void> {
  await keep(deps, ordersObject(run), async () => {
    const found = await runRecords.get(deps.store, run);
    if (!found) throw new Error(`Run ${run} disappeared while its orders were kept; the message comes again`);
    // Perhaps it waits because its orders cannot be read: only another stop may take their place.
    if (!found.spec && found.status !== 'cancelled') return undefined;
    const orders = ordersOf(found);
    const isNothingSaid = orders.status === 'active' && orders.version === 0;
    return {orders, isNothingSaid: isNothingSaid && orders.cancelled_streams.length === 0};
  });
}

/** Keeps the orders of several runs. */
export async function keepOrdersOf(deps: Deps, runs: readonly string[]): Promise<void> {
  await abreast(runs, run => keepRunOrders(deps, run));
}

function ordersOf(run: Run): RunOrders {
  const {reason, priority, budget_usd, version, cancelled_streams, stopped_at} = run;
  const isHeld = run.status === 'paused' || run.status === 'cancelled';
  return {
    schema: 'gleaner/1',
    run: run.run,
    status: isHeld ? run.status : 'active',
    reason: isHeld ? reason : null,
    priority,
    budget_usd,
    spent_usd: Math.max(run.spent_usd, run.cost_usd),
    version,
    cancelled_streams,
    stopped_at,
  } as RunOrders;
}

/** What the pool's document and those of its deleted workers say now. */
export async function keepPoolOrders(deps: Deps): Promise<void> {
  const deployed = deps.config.pool;
  await keep(deps, poolObject(deployed.pool), async () => {
    const pool = await poolRecords.get(deps.store, deployed);
    const held = await deps.store.query('workers', {where: [HELD]});
    const {zones, workers_per_zone, provisioning, budget_usd, spent_usd, version} = pool;
    const orders: PoolOrders = {
      schema: 'gleaner/1',
      pool: pool.pool,
      zones,
      workers_per_zone,
      provisioning,
      budget_usd,
      spent_usd,
      version,
      held: held.map(({id}) => id),
    };
    return {orders, isNothingSaid: version === 0 && held.length === 0};
  });
}

/**
 * The pool as messages had made it before its document was lost or broken, and the workers that they had deleted; undefined if none
 * had and nothing is broken. What its TPUs have cost is the most that anything says.
 */
export async function restorePool(deps: Deps): Promise<Pool | undefined> {
  const deployed = deps.config.pool;
  const name = poolObject(deployed.pool);
  const text = await readText(deps, name, MAX_BYTES);
  if (text === undefined && !(await deps.store.get(paths.pool(deployed.pool)))) return undefined;
  const {schema: _, held = [], ...orders} = text === undefined ? {} : parseJson(poolOrders, text, name);
  return deps.store.transaction(async tx => {
    const now = deps.now();
    const found = await tx.get(paths.pool(deployed.pool));
    const known = found && (await unlessBroken(deps, () => poolRecords.find(tx, deployed)));
    const lost: string[] = [];
    for (const worker of held) if (!(await tx.get(paths.worker(worker)))) lost.push(worker);
    const kept: Pool = {...deployed, ...orders, pool: deployed.pool};
    const spent_usd = Math.max(kept.spent_usd, dollarsIn(found));
    const pool = known ?? {...kept, spent_usd};
    if (!known) poolRecords.set(tx, pool);
    for (const worker of lost) {
      const place = parseWorkerName(worker);
      if (place) workerRecords.set(tx, {...newWorker(worker, place, now), held: true});
    }
    return pool;
  });
}

function dollarsIn(broken: Document | undefined): number {
  const usd = broken?.spent_usd;
  return typeof usd === 'number' && usd > 0 ? usd : 0;
}

/**
 * Replaces the object by what `now` says, unless it says so already. The generation is taken before the documents are read, so
 * of two that write at once the later word stays. Where nothing was ever said, no object is made.
 */
async function keep(
  deps: Deps,
  name: string,
  now: () => Promise<{orders: object; isNothingSaid: boolean} | undefined>,
): Promise<void> {
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const found = await deps.objects.head(name);
    const said = await now();
    if (!said || (!found && said.isNothingSaid)) return;
    const text = `${JSON.stringify(said.orders, null, 2)}\n`;
    if (found && (await readText(deps, name, MAX_BYTES)) === text) return;
    const as = {content_type: 'application/json'};
    const outcome = found
      ? await deps.objects.replace(name, found.generation, Buffer.from(text), as)
      : await deps.objects.create(name, Buffer.from(text), as);
    if (outcome === 'replaced' || outcome === 'created') return;
  }
  throw new Error(`Failed to keep ${name}: it changed ${ATTEMPTS} times meanwhile; the message comes again`);
}
