/**
 * Simulates one world from one seed: the real functions, simulated services, and operators who drop streams and send messages.
 * The first phase of a world, the storm, has faults. The second phase, the calm, has none. All work must end in it.
 */

import {openTask} from '../../shared/control-plane/documents/tasks.ts';
import {paths} from '../../shared/domain/names.ts';
import type {Document} from '../../shared/ports/ports.ts';
import {T0} from '../world/builders.ts';
import {MINUTE_MS} from './conditions/times.ts';
import {Context, type Options} from './context.ts';
import {Delivery} from './delivery.ts';
import {Jobs} from './jobs.ts';
import {LeftAlone} from './left-alone.ts';
import {OldRuns} from './old-runs.ts';
import {Operators} from './operators.ts';
import {Orders} from './orders.ts';
import {loadCode} from './planting/code.ts';
import {SecondPool} from './second-pool.ts';
import {changeFaults, drawStorm, endStorm, planLoss} from './storm.ts';
import {Vms} from './vms.ts';
import {planCollisions, planHastyPauses, planWishes} from './wishes.ts';

/**
 * The longest calm. All work must end in it: no rule may need the six hours after which a silent worker ends by itself. A zone
 * whose nodes live shortly gets few nodes in an hour, so each of them that a job may end makes the calm longer.
 */
const CALM_MINUTES = 330;
const CHURN_MINUTES = 12;
/** A world that is idle for this many minutes has ended. The interval between two looks at it. */
const IDLE_MINUTES = 12;
const LOOK_MS = 1000;

export type Outcome = {
  seed: number;
  violation: string | undefined;
  events: number;
  calls: number;
  /** Counts of faults, states and messages. */
  seen: Record<string, number>;
  trace: string[];
};

/** A world from its start on. Its driver runs the clock: `storm_ms` of the storm, then at most `calm_ms` of the calm. */
export type World = {
  context: Context;
  storm_ms: number;
  calm_ms: number;
  isBroken: () => boolean;
  beginCalm: () => void;
  isOver: () => boolean;
  end: () => Outcome;
};

export async function simulate(seed: number, options: Options = {}): Promise<Outcome> {
  const world = await startWorld(seed, options);
  const {clockwork} = world.context;
  await clockwork.run(T0 + world.storm_ms, world.isBroken);
  world.beginCalm();
  await clockwork.run(clockwork.now + world.calm_ms, world.isOver);
  return world.end();
}

export async function startWorld(seed: number, options: Options = {}): Promise<World> {
  const context = new Context(seed, options);
  const {clockwork, invariants} = context;
  await readPrices(context);
  drawStorm(context);
  const parts = await makeParts(context);
  const {delivery, jobs} = parts;
  watchServices(parts);
  planWork(parts);
  changeFaults(parts);
  delivery.startScheduler();
  invariants.watchCaps();
  const storm_ms = options.without?.has('long storm') ? 10 * MINUTE_MS : context.minutes(10, 40);
  const calm_ms = (CALM_MINUTES + CHURN_MINUTES * jobs.machines) * MINUTE_MS;
  const leftAlone = new LeftAlone(context, delivery, storm_ms);
  if (context.strikes('wipe')) planLoss(parts, storm_ms);
  const isBroken = () => invariants.violation !== undefined;
  const hasEnded = endOfIdleness(parts);
  const end = () => {
    if (!isBroken()) invariants.atTheEnd(delivery.underway);
    return {
      ...{seed, violation: invariants.violation, events: clockwork.events},
      ...{calls: delivery.processes.calls_made, seen: Object.fromEntries(context.seen), trace: context.trace},
    };
  };
  const beginCalm = () => endStorm(parts, leftAlone, calm_ms);
  return {context, storm_ms, calm_ms, isBroken, beginCalm, isOver: () => hasEnded() || isBroken(), end};
}

/** The deployment is older than the world: the prices of the day are read. */
async function readPrices({store}: Context): Promise<void> {
  const path = paths.task('resync');
  await store.edit(tx => openTask(tx, {task: 'resync', run: null}, T0 - 10 * MINUTE_MS));
  await store.edit(async tx => tx.set(path, {...(await tx.get(path)), status: 'done', result: 'compared'}));
}

/** What acts in a world. */
type Parts = Awaited<ReturnType<typeof makeParts>>;

async function makeParts(context: Context) {
  const {mistake} = context.options;
  const codes = {
    current: await loadCode(context.release, mistake),
    next: context.faults.rollout > 0 ? await loadCode('next', mistake) : undefined,
  };
  context.tpuConstraint = codes.current.tpuConstraint;
  const delivery = new Delivery(context, codes);
  const vms = new Vms(context, delivery.processes, codes);
  const second = new SecondPool(context, delivery);
  const jobs = new Jobs(context, delivery, second);
  const orders = new Orders(context, delivery, second);
  const operators = new Operators(context, delivery, jobs, second, orders);
  const oldRuns = new OldRuns(context, delivery);
  return {context, delivery, vms, second, jobs, orders, operators, oldRuns};
}

/** Passes what happens in the bucket, at Cloud TPU and in the Store to the invariants, and to the parts that act on it. */
function watchServices({context, delivery, oldRuns}: Parts): void {
  const {invariants, objects, store, tpus} = context;
  objects.onFinalized = info => {
    invariants.progress.onObject(info);
    invariants.money.onObject(info);
    if (!context.isNoticed) return;
    delivery.send('object', {bucket: 'bucket', name: info.name, generation: info.generation});
  };
  objects.onDeleted = name => invariants.progress.onDeleted(name);
  objects.onMoved = name => invariants.progress.onSetAside(name);
  tpus.onAskedFor = request => {
    invariants.nodes.onNodeRequest(request);
    invariants.waiting.onNodeRequest(request);
  };
  tpus.onDeleted = node => invariants.nodes.onNodeDeleted(node);
  const onWorker = [planHastyPauses(context, delivery), planCollisions(context, delivery)];
  store.onCommit = (path, before, after) => {
    context.note(() => `  ${path} ${describe(after)}`);
    invariants.onCommit(path, before, after);
    if (/^workers\/[^/]+$/.test(path) && after) for (const act of onWorker) act(before, after);
    if (/^runs\/[^/]+$/.test(path) && after) oldRuns.onRun(path.slice(5), before, after);
  };
  store.onCommitted = paths => invariants.onCommitted(paths);
}

function planWork({context, delivery, second, operators}: Parts): void {
  operators.planRegions();
  operators.planDrops();
  context.rise.plan(context);
  operators.planMessages();
  operators.planForeign();
  operators.planStray();
  second.plan();
  planWishes(context, delivery);
}

/** Returns whether a world has been idle for so long that it has ended. It counts from the first look that finds it idle. */
function endOfIdleness(parts: Parts): () => boolean {
  const {clockwork} = parts.context;
  let [idleSince, looked_at] = [Number.POSITIVE_INFINITY, 0];
  return () => {
    if (clockwork.now - looked_at >= LOOK_MS) {
      looked_at = clockwork.now;
      idleSince = isIdle(parts) ? Math.min(idleSince, clockwork.now) : Number.POSITIVE_INFINITY;
    }
    return clockwork.now - idleSince > IDLE_MINUTES * MINUTE_MS;
  };
}

function isIdle({context: {store, tpus}, delivery, oldRuns, operators, jobs, orders}: Parts): boolean {
  return (
    delivery.underway === 0 &&
    oldRuns.isSettled &&
    tpus.names().length === 0 &&
    [operators, jobs, orders].every(part => part.unfinished().length === 0) &&
    store.collection('notices').every(({data}) => data.next_at === null) &&
    store.collection('runs').every(({data}) => data.status !== 'active')
  );
}

const TRACED_FIELDS = [
  ...['phase', 'status', 'incarnation', 'epoch', 'lease', 'total_shards'],
  ...['work', 'outcome', 'reason', 'text'],
];

function describe(document: Document | undefined): string {
  if (!document) return 'deleted';
  return JSON.stringify(
    Object.fromEntries(
      TRACED_FIELDS.filter(field => field in document).map(field => [field, document[field]]),
    ),
  );
}
