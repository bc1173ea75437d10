import {z} from 'zod';
import {Rejected} from '../../../contracts/errors.ts';
import {poolName} from '../../../contracts/messages/job-schemas.ts';
import {version, withSomeOf, zones} from '../../../contracts/messages/schemas.ts';
import {priceOf} from '../../../domain/billing/budget.ts';
import {type Decision, decidePausePool, decideResumePool} from '../../../domain/commands/commands.ts';
import {decideKeep, decideScale, type PoolLimits, slotsIn} from '../../../domain/commands/settings.ts';
import {paths} from '../../../domain/names.ts';
import {messageShape} from '../../../domain/records/field-schema.ts';
import {OPEN} from '../../../domain/records/limiter.ts';
import type {Pool} from '../../../domain/records/pool.ts';
import {poolSettings} from '../../../domain/records/pool-settings.ts';
import {environment, sourceChange, withSourceVersion} from '../../../domain/records/source.ts';
import type {Worker} from '../../../domain/records/worker.ts';
import type {Zone} from '../../../domain/records/zone.ts';
import {decideUpdate} from '../../../domain/source/source-change.ts';
import {iso} from '../../../domain/time.ts';
import {newOpenRuns, readOpenRuns} from '../../caches/open-runs.ts';
import {readPool, readPools} from '../../caches/pool-cache.ts';
import {batchesOf, forEachConcurrently, MASS_LANES} from '../../calls/concurrency.ts';
import type {Deps} from '../../deps.ts';
import {
  LIVING,
  leftAlone,
  poolRecords,
  UNFINISHED,
  workerRecords,
  zoneRecords,
} from '../../documents/documents.ts';
import {recordEventNow} from '../../documents/event-log.ts';
import {readPrices} from '../../documents/prices.ts';
import {zoneOf} from '../../documents/zones.ts';
import {boundSlots} from '../../runs/count-streams.ts';
import {type Awaitable, type CommandOutcome, command, conclude, type MessageTurn} from './command.ts';

async function existing({deps, tx}: MessageTurn, name: string): Promise<Pool> {
  const pool = await poolRecords.find(tx, name, deps.config.pool);
  if (!pool) throw new Rejected(`there is no pool "${name}": create it with the action "pool"`);
  return pool;
}

/** Decides about the pool of the message, by default the deployment's own, and writes the result. */
async function onPool(
  turn: MessageTurn,
  name: string | undefined,
  decide: (pool: Pool) => Awaitable<Decision<Pool>>,
) {
  const {deps, tx} = turn;
  const pool = await existing(turn, name ?? deps.config.pool.pool);
  return conclude(await decide(pool), next => poolRecords.set(tx, next), {pool: pool.pool});
}

/** Settings of a pool that messages may change at any time. */
export const changes = {zones: zones.optional(), ...messageShape(poolSettings)};

/** Ceilings of the deployment, and the present slots of its other pools. Each tick enforces them. */
export async function limitsOf(deps: Deps, name: string): Promise<PoolLimits> {
  const {ceilings, limits, max_hosts, providers} = deps.config;
  const others = (await readPools(deps)).pools.filter(({pool}) => pool !== name);
  const elsewhere = others.reduce((sum, pool) => sum + slotsIn(pool), 0);
  return {ceilings, elsewhere, longest_poll_s: limits.stall_s / 2, max_hosts, providers};
}

export function pausePool(turn: MessageTurn, name: string): Promise<CommandOutcome> {
  return onPool(turn, name, pool => decidePausePool(pool, turn.published_at, turn.now));
}

/** Ends the stops of creates, in a pool and its zones, that began before the message. */
export async function resumePool(turn: MessageTurn, name: string): Promise<CommandOutcome> {
  const {deps, tx, published_at, now} = turn;
  const pool = await existing(turn, name);
  const zones = await Promise.all(pool.zones.map(zone => zoneOf(deps, tx, {zone, pool: pool.pool}, now)));
  const resume = (next: Pool) => {
    poolRecords.set(tx, next);
    const isEarlier = ({limiter: {since_at}}: Zone) => since_at === null || since_at <= published_at;
    for (const zone of zones.filter(isEarlier))
      zoneRecords.set(tx, {
        ...zone,
        limiter: {...OPEN, has_given: zone.limiter.has_given},
        updated_at: iso(now),
      });
  };
  return conclude(decideResumePool(pool, published_at), resume, {pool: pool.pool});
}

export const scale = command({
  schema: withSomeOf(
    z.strictObject({
      action: z.literal('scale'),
      pool: poolName.optional(),
      ...changes,
      if_version: version.optional(),
    }),
    ...Object.keys(changes),
  ),
  decide: (turn, {action: _, pool: name, if_version, ...settings}) =>
    onPool(turn, name, async pool => {
      const limits = await limitsOf(turn.deps, pool.pool);
      return decideScale(pool, settings, if_version, limits, turn.published_at);
    }),
  after: (deps, {pool}) => recordStranded(deps, pool ?? deps.config.pool.pool),
});

/** Keeps TPUs without work for the next job or command. */
export const keep = command({
  schema: z.strictObject({
    action: z.literal('keep'),
    pool: poolName.optional(),
    minutes: z.number().int().min(0).max(1440).describe('Minutes for which a pool keeps TPUs without work.'),
    workers: z.number().int().min(1).max(1000).describe('TPUs that stay.').optional(),
  }),
  decide: ({deps, ...turn}, {pool: name, minutes, workers = 1}) =>
    onPool({deps, ...turn}, name, async pool => {
      const decision = decideKeep(pool, {minutes, workers}, turn.published_at, turn.now);
      if (decision.kind === 'rejected' || minutes === 0) return decision;
      return {...decision, what: `${decision.what}, ${await priceText(deps, pool, workers)}`};
    }),
});

async function priceText(deps: Deps, pool: Pool, workers: number): Promise<string> {
  const prices = await readPrices(deps, [pool]);
  const dollars = pool.zones.map(zone => priceOf(prices, pool, zone));
  if (dollars.includes(null)) return 'at a price that is unknown: set prices/chips';
  const most = workers * Math.max(...dollars.map(Number));
  return `for at most $${most.toFixed(2)} an hour`;
}

/** Records how many streams of `affinity: fixed` lost their slot because the pool shrank. */
export async function recordStranded(deps: Deps, name: string): Promise<void> {
  const pool = await readPool(deps, name);
  if (!pool) return;
  const {runs} = await readOpenRuns({...deps, openRuns: newOpenRuns()});
  for (const run of runs) {
    if (run.affinity === 'any' || run.pool !== pool.pool) continue;
    const bound = await boundSlots(deps.store, run, pool);
    const stranded = (await deps.store.count(paths.streams(run.run), [UNFINISHED])) - bound.length;
    if (stranded <= 0) continue;
    const text = `${stranded} streams of run ${run.run} wait: the pool has no TPU with their numbers (affinity: fixed); scale the pool`;
    await recordEventNow(deps, {kind: 'run', run: run.run, text});
  }
}

/** Changes the source or the environment of a pool. A message without either makes every host fetch the source again. */
export const update = command({
  schema: z.strictObject({
    action: z.literal('update'),
    pool: poolName.optional(),
    source: sourceChange.nullable().optional(),
    environment: environment.partial().optional(),
  }),
  decide: (turn, {pool: name, source, environment}) =>
    onPool(turn, name, pool =>
      decideUpdate(pool, {source, environment}, turn.deps.config.has_internet, turn.published_at),
    ),
  after: (deps, {pool = deps.config.pool.pool}) => spreadSource(deps, pool),
});

const MOST_TOLD = 50;

/** Writes the version of the pool's source into the documents of its workers. The tick does so for workers that are missed here. */
async function spreadSource(deps: Deps, name: string): Promise<void> {
  const {store, log} = deps;
  const pool = await readPool(deps, name);
  if (!pool) return;
  const stored = await store.query('workers', {where: [LIVING, {field: 'pool', op: '==', value: name}]});
  const outdated = workerRecords
    .parseAll(stored, leftAlone(log))
    .filter(worker => withSourceVersion(worker, pool) !== worker);
  const tell = (batch: readonly Worker[]) =>
    store.transaction(async tx => {
      const workers = await Promise.all(batch.map(({name}) => workerRecords.read(log, tx, name)));
      for (const worker of workers) {
        const next = worker && withSourceVersion(worker, pool);
        if (next && next !== worker) workerRecords.set(tx, next);
      }
    });
  await forEachConcurrently(batchesOf(outdated, MOST_TOLD), tell, MASS_LANES);
}
