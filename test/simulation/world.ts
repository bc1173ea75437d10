/**
 * Simulates one world from one seed: the real functions, simulated services, and operators who drop streams and send messages.
 * The first phase of a world, the storm, has faults. The second phase, the calm, has none. All work must end in it.
 */

import {openTask} from '../../shared/control-plane/documents/tasks.ts';
import {paths} from '../../shared/domain/names.ts';
import type {Document} from '../../shared/ports/ports.ts';
import {T0} from '../world/builders.ts';
import type {SimStore} from '../world/store.ts';
import {drawFaults} from './conditions/faults.ts';
import {MINUTE_MS} from './conditions/times.ts';
import {Context, type Options} from './context.ts';
import {Delivery} from './delivery.ts';
import {Jobs} from './jobs.ts';
import {LeftAlone} from './left-alone.ts';
import {OldRuns} from './old-runs.ts';
import {Operators} from './operators.ts';
import {Orders} from './orders.ts';
import {loadCode} from './planting/code.ts';
import {PERMISSIONS} from './processes.ts';
import {SecondPool} from './second-pool.ts';
import {Vms} from './vms.ts';
import {
  planCollisions,
  planForbiddenZone,
  planHastyPauses,
  planKeeping,
  planPriorities,
  planRebuilds,
  planRunBudgets,
  planRush,
} from './wishes.ts';

/**
 * The longest calm. All work must end in it: no rule may need the six hours after which a silent worker ends by itself. A zone
 * whose nodes live shortly gets few nodes in an hour, so each of them that a job may end makes the calm longer.
 */
const CALM_MINUTES = 330;
const CHURN_MINUTES = 12;
/** The time between two interventions of an operator in the calm. */
const INTERVENTION_MS = 15 * MINUTE_MS;
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
  const {chance, clockwork, invariants, objects, store, tpus} = context;
  // The deployment is older than the world: the prices of the day are read.
  const path = paths.task('resync');
  await store.edit(tx => openTask(tx, {task: 'resync', run: null}, T0 - 10 * MINUTE_MS));
  await store.edit(async tx => tx.set(path, {...(await tx.get(path)), status: 'done', result: 'compared'}));
  context.storm = drawFaults(chance, options.without, options.condition);
  if (context.drawsOf('lost database')) context.storm.wipe = 1;
  // A slow tick starts the next one late, and a slow message wakes one late.
  if (context.drawsOf('slow ticks') || context.drawsOf('collisions'))
    context.storm.latency_ms = Math.max(context.storm.latency_ms, 1);
  context.faults = context.storm;
  context.note(() => `faults ${JSON.stringify(context.faults)}`);
  const codes = {
    current: await loadCode(context.release, options.mistake),
    next: context.faults.rollout > 0 ? await loadCode('next', options.mistake) : undefined,
  };
  context.tpuConstraint = codes.current.tpuConstraint;
  const delivery = new Delivery(context, codes);
  const vms = new Vms(context, delivery.processes, codes);
  const second = new SecondPool(context, delivery);
  const jobs = new Jobs(context, delivery, second);
  const orders = new Orders(context, delivery, second);
  const operators = new Operators(context, delivery, jobs, second, orders);
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
  const oldRuns = new OldRuns(context, delivery);
  const onWorker = [planHastyPauses(context, delivery), planCollisions(context, delivery)];
  const onCommit: SimStore['onCommit'] = (path, before, after) => {
    context.note(() => `  ${path} ${describe(after)}`);
    invariants.onCommit(path, before, after);
    if (/^workers\/[^/]+$/.test(path) && after) for (const act of onWorker) act(before, after);
    if (/^runs\/[^/]+$/.test(path) && after) oldRuns.onRun(path.slice(5), before, after);
  };
  store.onCommit = onCommit;
  store.onCommitted = paths => invariants.onCommitted(paths);

  operators.planRegions();
  operators.planDrops();
  context.rise.plan(context);
  operators.planMessages();
  operators.planForeign();
  operators.planStray();
  second.plan();
  planKeeping(context, delivery);
  planRebuilds(context, delivery);
  planPriorities(context, delivery);
  planRunBudgets(context, delivery);
  planForbiddenZone(context);
  planRush(context, delivery);
  changeFaults(context, vms);
  delivery.startScheduler();
  invariants.watchCaps();
  const storm_ms = options.without?.has('long storm') ? 10 * MINUTE_MS : context.minutes(10, 40);
  const calm_ms = (CALM_MINUTES + CHURN_MINUTES * jobs.machines) * MINUTE_MS;
  const leftAlone = new LeftAlone(context, delivery, storm_ms);
  let isLost = false;
  const loseDatabase = () => {
    if (isLost || context.isCalm) return;
    isLost = true;
    context.note(() => 'the database is lost');
    store.wipe();
    context.alone.clear();
    context.submitted.clear();
    context.aged.clear();
    invariants.onWipe();
    // The loss of a database restarts no instance by itself. In some worlds an operator restarts all of them.
    if (chance.happens(0.25)) delivery.processes.killAll();
    operators.planRecovery();
    if (context.faults.partition > 0) cutZone(context);
  };
  if (context.strikes('wipe')) {
    context.after(chance.between(0.2, 0.8) * storm_ms, loseDatabase);
    // The worst time is after the end of all work, when nodes remain that only the documents record.
    store.onCommit = (path, before, after) => {
      onCommit(path, before, after);
      const isDone =
        after?.status === 'completed' && before?.status === 'active' && path.split('/').length === 2;
      if (isDone && store.collection('runs').every(({data}) => data.status === 'completed'))
        context.after(0, loseDatabase);
    };
  }
  const isBroken = () => invariants.violation !== undefined;
  const beginCalm = () => {
    context.note(() => 'the storm is over');
    context.endStorm();
    void leftAlone.restore();
    context.isApiOut = false;
    context.isStoreOut = false;
    context.refused = undefined;
    invariants.silence.onOutage(false);
    tpus.removeForeign();
    tpus.openZones();
    for (let ms = INTERVENTION_MS; ms < calm_ms; ms += INTERVENTION_MS)
      context.after(ms, () => operators.intervene());
  };
  const isIdle = () =>
    delivery.underway === 0 &&
    oldRuns.isSettled &&
    tpus.names().length === 0 &&
    operators.unfinished().length === 0 &&
    jobs.unfinished().length === 0 &&
    orders.unfinished().length === 0 &&
    store.collection('notices').every(({data}) => data.next_at === null) &&
    store.collection('runs').every(({data}) => data.status !== 'active');
  let idleSince = Number.POSITIVE_INFINITY;
  let looked_at = 0;
  const isOver = () => {
    if (clockwork.now - looked_at >= LOOK_MS) {
      looked_at = clockwork.now;
      idleSince = isIdle() ? Math.min(idleSince, clockwork.now) : Number.POSITIVE_INFINITY;
    }
    return isBroken() || clockwork.now - idleSince > IDLE_MINUTES * MINUTE_MS;
  };
  const end = () => {
    if (!isBroken()) invariants.atTheEnd(delivery.underway);
    return {
      seed,
      violation: invariants.violation,
      events: clockwork.events,
      calls: delivery.processes.calls_made,
      seen: Object.fromEntries(context.seen),
      trace: context.trace,
    };
  };
  return {context, storm_ms, calm_ms, isBroken, beginCalm, isOver, end};
}

/** Draws the outages of zones and services again every few minutes. */
function changeFaults(context: Context, vms: Vms): void {
  if (context.isCalm) return;
  for (const [name, zone] of context.tpus.zones) {
    zone.soldOut = context.strikes('stockout');
    zone.overQuota = context.strikes('quota');
    zone.unreachable = context.strikes('partition') || zone.isDark;
    const {soldOut, overQuota, unreachable, isDark} = zone;
    context.note(() => `${name} ${JSON.stringify({soldOut, overQuota, unreachable, isDark})}`);
    if (context.strikes('storm')) vms.preemptZone(name);
    if (context.strikes('zone_cut')) context.cutZones.add(name);
    else context.cutZones.delete(name);
  }
  context.isApiOut = context.strikes('outage');
  context.isStoreOut = context.strikes('store_outage');
  context.refused = context.strikes('permission') ? context.chance.pick(PERMISSIONS) : undefined;
  context.invariants.silence.onOutage(context.isApiOut || context.isStoreOut);
  context.after(context.minutes(3, 12), () => changeFaults(context, vms));
}

/** Makes a zone unreachable until the calm, preferably a zone with nodes, whose documents are lost. */
function cutZone({chance, tpus}: Context): void {
  const zone = chance.pick([
    ...[...tpus.nodes.values()].map(node => tpus.zone(node.zone)),
    ...tpus.zones.values(),
  ]);
  Object.assign(zone, {isDark: true, unreachable: true});
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
