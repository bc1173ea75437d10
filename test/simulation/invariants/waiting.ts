/** Checks that waiting work has a reason that is true in the world, and that the refusals of a zone are one event with their count. */

import {slotsOf} from '../../../shared/domain/fleet/slots.ts';
import {isWaiting} from '../../../shared/domain/job/queue.ts';
import {parseWork, paths} from '../../../shared/domain/names.ts';
import type {
  Constraint,
  ConstraintKind,
  Waiting as Reason,
} from '../../../shared/domain/records/constraint.ts';
import type {Pool} from '../../../shared/domain/records/pool.ts';
import type {Worker} from '../../../shared/domain/records/worker.ts';
import type {Zone} from '../../../shared/domain/records/zone.ts';
import type {Document, TpuRequest} from '../../../shared/ports/ports.ts';
import {keepsWakes, MAX_HANG_MINUTES} from '../conditions/faults.ts';
import {MINUTE_MS} from '../conditions/times.ts';
import {streamPathOf} from './leases.ts';
import {workersOf} from './nodes.ts';
import {Check} from './violations.ts';

/** Minutes of calm after which a missing or wrong reason is no delay of a tick. */
const MOST_MINUTES = 4;
/** A zone that refused nodes is asked again within five minutes, and a create takes a few more. */
const MOST_MINUTES_OF_REFUSALS = 20;

/** Phases of a TPU that a reason names, by the beginning of the reason's evidence. */
const PHASES: [kind: ConstraintKind, evidence: string, phases: string[]][] = [
  ['coming', 'it is being created', ['creating', 'gone']],
  ['coming', 'it waits in the queue', ['creating']],
  ['coming', 'it boots', ['booting', 'creating']],
  ['idle', '', ['idle', 'booting']],
  ['away', 'it leaves its slot', ['deleting', 'draining', 'gone']],
];
const UP = ['creating', 'booting', 'idle', 'working'];
const REFUSED = ['zone', 'quota', 'permission', 'not-read'];
/** Reasons of a zone that does give TPUs: few, or none that ends up READY. */
const GIVES = /^it (preempts|accepts)/;

export class Waiting extends Check {
  /** By run or pool: the finding, and for how many minutes in a row it holds. */
  #found = new Map<string, {text: string; minutes: number}>();
  /** By zone: the times of requests for nodes. */
  readonly #asked = new Map<string, number[]>();
  /** Events about refusals, by zone and start of the refusals. */
  readonly #events = new Map<string, string>();
  /** By TPU: its phases and their begin. */
  readonly #phases = new Map<string, {at: number; phase: string}[]>();
  /** By pool: the time of the last change of its slots. */
  readonly #resized = new Map<string, number>();

  override onMinute(): void {
    this.#checkTpus();
    const before = this.#found;
    this.#found = new Map();
    if (!this.context.isSettled(120_000) && !this.#areTicksSound()) return;
    const wrong = this.#wrong();
    for (const [what, text] of wrong) {
      const last = before.get(what);
      const minutes = last?.text === text ? last.minutes + 1 : 1;
      this.#found.set(what, {text, minutes});
      const most = text.includes('refuses') ? MOST_MINUTES_OF_REFUSALS : MOST_MINUTES;
      if (minutes > most) this.breach(`${what} ${text}, for ${minutes} minutes`);
    }
  }

  /** True for a storm whose faults keep no tick from storing a reason. */
  #areTicksSound(): boolean {
    const {isCalm, storm} = this.context;
    const others = ['partition', 'outage', 'rollout', 'stale', 'omission', 'skew_s'] as const;
    return !isCalm && keepsWakes(storm) && others.every(kind => storm[kind] === 0);
  }

  /** Findings about runs and pools whose work waits. */
  #wrong(): Map<string, string> {
    const {store, config} = this.context;
    const wrong = new Map<string, string>();
    for (const {id, data} of store.collection('runs')) {
      const streams = store.collection(paths.streams(id));
      const waits = streams.some(({data: {status}}) => status === 'pending');
      const isOpen = data.status === 'active' && data.spec !== null && this.#isUnderstood(String(data.pool));
      const text =
        waits && isOpen ? this.#wrongReason(String(data.pool), data.waits as Reason | null) : undefined;
      if (text) wrong.set(`run ${id}`, text);
      const next_at = data.status === 'paused' && data.model_next_at;
      if (next_at && Date.parse(String(next_at)) < this.context.clockwork.now)
        wrong.set(`run ${id}`, `does not try its model again, which it was to do at ${next_at}`);
    }
    const jobs = store.collection(config.jobs_collection);
    for (const {id, data} of store.collection('pools')) {
      const waits = jobs.some(job => job.data.pool === id && isWaiting({...job.data, job: job.id} as never));
      const text =
        waits && this.#isUnderstood(id) ? this.#wrongReason(id, data.jobs_wait as Reason | null) : undefined;
      if (text) wrong.set(`pool ${id}`, text);
    }
    return wrong;
  }

  #isUnderstood(pool: string): boolean {
    return this.context.alone.size === 0 && this.context.store.peek(paths.pool(pool)) !== undefined;
  }

  /** Why the reason is missing or wrong; undefined for a reason that is true. */
  #wrongReason(name: string, waits: Reason | null): string | undefined {
    if (!waits) return 'waits without a reason';
    const untrue = this.#untrue(waits, this.context.store.peek(paths.pool(name)) as Pool);
    if (untrue) return `waits for ${waits.kind}, and ${untrue}: ${waits.evidence}`;
    const {kind, about} = waits;
    const {store} = this.context;
    const worker = store.peek(paths.worker(about));
    const phases = phasesOf(waits);
    if (phases && !phases.includes(phaseOf(worker ?? {})) && !this.#isSoonFree(waits))
      return `waits for ${about}, which is ${worker?.phase}: ${kind}`;
    if (kind === 'deleted' && worker?.held !== true) return `waits for ${about}, whose slot is not held`;
    if (
      kind === 'behind' &&
      about.startsWith('run ') &&
      store.peek(paths.run(about.slice(4)))?.status !== 'active'
    )
      return `waits behind ${about}, which is not active`;
    // A create of the storm may never end: the control plane gives it up after `create_s`. A zone without a permission is tried each hour.
    const zone = this.context.tpus.zones.get(about);
    const isForbidden =
      (kind === 'permission' && zone?.refusals.has(kind)) || (zone && zone.slices < Infinity);
    if (
      REFUSED.includes(kind) &&
      !GIVES.test(waits.evidence ?? '') &&
      this.context.isCalm &&
      !isForbidden &&
      !this.#isStuckIn(about)
    )
      return `waits because ${about} refuses nodes in the calm: ${kind}`;
    return undefined;
  }

  /** The contradiction of the reason by the pool and its TPUs; undefined without one. */
  #untrue({kind, about}: Reason, pool: Pool): string | undefined {
    const {config, store} = this.context;
    const workers = slotsOf(pool).map(({name}) => store.peek(paths.worker(name)));
    const empty = workers.filter(worker => (worker?.phase ?? 'gone') === 'gone').length;
    const isUp = (worker: Document | undefined) =>
      UP.includes(String(worker?.phase)) || (worker?.phase === 'draining' && worker.work !== null);
    const isThere = workers.some(isUp);
    const limiters = store.collection('zones').map(({data}) => (data as Zone).limiter);
    const causes = [pool.limiter, ...limiters].map(({cause}) => cause);
    switch (kind) {
      case 'pool-full':
        return empty > 0 || !isThere
          ? `${empty} of ${workers.length} slots of ${about} are empty`
          : undefined;
      case 'slices': {
        const job = store.peek(paths.job(config.jobs_collection, about.replace('job ', '')));
        return job?.status === 'scheduled' && Number(job.slices) > 1 ? undefined : `${about} is no such job`;
      }
      case 'no-slot':
        return workers.length > 0 ? `${about} has ${workers.length} slots` : undefined;
      case 'pool-paused':
        return pool.limiter.cause === 'person' ? undefined : `no person paused ${about}`;
      case 'failed-boots':
        return causes.includes('boots') ? undefined : 'no limiter counts failed boots';
      case 'unreadable':
        return `every document of ${about} is understood`;
      case 'budget':
        return this.#hasBudget(pool) ? undefined : `${about} has no budget`;
      case 'ceiling':
        return Number.isFinite(config.ceilings.max_workers) ? undefined : 'the deployment has no ceiling';
      default:
        return undefined;
    }
  }

  #hasBudget({pool, budget_usd}: Pool): boolean {
    const {config, store} = this.context;
    const runs = store.collection('runs').filter(({data}) => data.pool === pool);
    const all = [budget_usd, config.ceilings.max_budget_usd, ...runs.map(({data}) => data.budget_usd)];
    return all.some(each => typeof each === 'number');
  }

  /** True if a request for a node in the zone never ends. */
  #isStuckIn(zone: string): boolean {
    const {storm, store, tpus} = this.context;
    const isUnderWay = (name: string) =>
      tpus.nodes.get(name)?.state === 'CREATING' || tpus.queue.get(name)?.state === 'PROVISIONING';
    return (
      storm.stuck > 0 &&
      workersOf(store).some(each => each.zone === zone && each.phase === 'creating' && isUnderWay(each.name))
    );
  }

  /** People see a reason for each TPU that does no work, in the words of its phase. */
  #checkTpus(): void {
    const {clockwork, store, tpuConstraint} = this.context;
    for (const worker of workersOf(store)) {
      const phase = phaseOf(worker);
      const waits = tpuConstraint?.(worker, undefined, clockwork.now);
      const phases = waits && phasesOf(waits);
      if (phases ? !phases.includes(phase) : waits === undefined && !['working', 'gone'].includes(phase))
        this.breach(`${worker.name} is ${phase}, and people see ${waits?.kind ?? 'no reason'}`);
    }
  }

  onWorker(name: string, worker: Document): void {
    const now_is = phaseOf(worker);
    const all = this.#phases.get(name) ?? [];
    if (all.at(-1)?.phase !== now_is) all.push({at: this.context.clockwork.now, phase: now_is});
    this.#phases.set(name, all);
  }

  onPool(name: string, before: Document | undefined, after: Document): void {
    const isSame = before?.zones === after.zones && before?.workers_per_zone === after.workers_per_zone;
    if (!isSame) this.#resized.set(name, this.context.clockwork.now);
    this.#onReason(`pool ${name}`, after as Pool, before?.jobs_wait, after.jobs_wait);
  }

  onRun(run: string, before: Document | undefined, {affinity, pool, status, waits}: Document): void {
    if (waits && status !== 'active')
      this.breach(`run ${run} is ${status}, and waits for ${(waits as Reason).about}`);
    const found = this.context.store.peek(paths.pool(String(pool))) as Pool | undefined;
    // A stream of a fixed run waits for its own slot.
    if (found && affinity === 'any') this.#onReason(`run ${run}`, found, before?.waits, waits);
  }

  /** A reason that a tick stores was true at some time since the tick began. */
  #onReason(what: string, pool: Pool, before: unknown, after: unknown): void {
    const {actor} = this.violations;
    const [was, is] = [before, after] as (Reason | null | undefined)[];
    if (!actor || !('at' in actor) || !this.violations.isBy('tick')) return;
    if (!is || (was?.kind === is.kind && was.about === is.about) || this.context.alone.size > 0) return;
    const phases = phasesOf(is);
    const had = this.#phasesSince(is.about, actor.at);
    if (phases && !phases.some(phase => had.has(phase)) && !this.#isSoonFree(is))
      this.breach(`${what} waits for ${is.about}: ${is.kind}, and that was ${[...had]}`);
    if (is.kind !== 'pool-full' || (this.#resized.get(pool.pool) ?? 0) >= actor.at) return;
    // A slow tick stores the reason of work that has ended or begun since.
    if (this.context.drawsOf('slow ticks') || this.context.drawsOf('collisions')) return;
    const slots = slotsOf(pool).map(({name}) => this.#phasesSince(name, actor.at));
    const empty = slots.filter(had => had.size === 1 && had.has('gone')).length;
    // A fault may drop a request for an empty slot. The reason counts that slot as one at work.
    const atWork = Number(/^\d+/.exec(is.evidence ?? '')?.[0]);
    const isAnyDropped = atWork > slots.length - empty && !this.#areTicksSound() && !this.context.isSettled();
    if (empty > 0 && !isAnyDropped && !this.#isAnyFree(pool, actor.at))
      this.breach(
        `${what} waits for its turn, and ${empty} of ${slots.length} slots of ${pool.pool} are empty`,
      );
  }

  /** True if the reason names a TPU with a stream of a run that was paused or has ended: the TPU asks for work soon. */
  #isSoonFree({kind, about}: Reason): boolean {
    const {store} = this.context;
    const {phase, work} = store.peek(paths.worker(about)) ?? {};
    const run = parseWork(work as string | null)?.run;
    const isAtStream = kind === 'idle' && phase === 'working' && run !== undefined;
    return isAtStream && store.peek(paths.run(run))?.status !== 'active';
  }

  /**
   * True if a TPU of the pool has stored its last shard, and takes the next work soon; or if since the time it was idle, was taken from its
   * work, or took work while a call hung.
   */
  #isAnyFree({pool}: Pool, at: number): boolean {
    const {clockwork, store} = this.context;
    const hasHung = clockwork.now - at > MINUTE_MS;
    const isFree = ({name, work}: Worker): boolean => {
      const had = this.#phasesSince(name, at);
      const hasChanged = had.has('working') && had.size > 1 && (hasHung || had.has('deleting'));
      return hasChanged || had.has('idle') || store.peek(streamPathOf(work))?.status === 'completed';
    };
    return workersOf(store).some(worker => worker.pool === pool && isFree(worker));
  }

  #phasesSince(name: string, at: number): Set<string> {
    const all = this.#phases.get(name) ?? [];
    const first = all.findLastIndex(each => each.at <= at);
    return new Set([
      ...(first < 0 ? ['gone'] : []),
      ...all.slice(Math.max(0, first)).map(({phase}) => phase),
    ]);
  }

  onNodeRequest({zone}: TpuRequest): void {
    this.#asked.set(zone, [...(this.#asked.get(zone) ?? []), this.context.clockwork.now]);
  }

  /** A zone counts only refusals of its own requests. */
  onZone(path: string, {zone, limiter}: Zone): void {
    if (limiter.state === 'open' || limiter.since_at === null) return;
    // A slow tick stores a refusal late.
    const late_ms = this.context.drawsOf('slow ticks') ? MAX_HANG_MINUTES * 60_000 : 120_000;
    const since = Date.parse(limiter.since_at) - late_ms;
    const asked = (this.#asked.get(zone) ?? []).filter(at => at >= since).length;
    if (limiter.refusals > asked + 1)
      this.breach(
        `${path} counts ${limiter.refusals} refusals since ${limiter.since_at}, and had ${asked} requests`,
      );
  }

  /** A new event about refusals needs a zone that was open since the last one. */
  onEvent(id: string, before: Document | undefined, {text}: Document): void {
    const [, zone, since] =
      /^(\S+) gives no node: .*; refused \d+ times since (\S+),/.exec(String(text)) ?? [];
    if (before || zone === undefined) return;
    const first = this.#events.get(`${zone} ${since}`);
    if (first !== undefined && first !== id)
      this.breach(`the refusals of ${zone} since ${since} are several events`);
    this.#events.set(`${zone} ${since}`, id);
  }

  override onWipe(): void {
    this.#events.clear();
    for (const [name, phases] of this.#phases) if (phases.length > 0) this.onWorker(name, {phase: 'gone'});
  }
}

function phasesOf({kind, evidence}: Constraint): string[] | undefined {
  return PHASES.find(([of, begin]) => of === kind && (evidence ?? '').startsWith(begin))?.[2];
}

/** The control plane ended the job of a TPU at its deadline, and its agent has not heard of that: the TPU counts as idle. */
function phaseOf({phase, work}: Document): string {
  return phase === 'working' && work === null ? 'idle' : String(phase ?? 'gone');
}
