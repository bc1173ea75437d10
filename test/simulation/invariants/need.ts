/** Checks that a pool gets no node beyond its work and the TPUs that it keeps, and that a slow tick serves first the pools that the last one left out. */

import {jobWork, paths} from '../../../shared/domain/names.ts';
import type {Pool} from '../../../shared/domain/records/pool.ts';
import type {Worker} from '../../../shared/domain/records/worker.ts';
import type {Document} from '../../../shared/ports/ports.ts';
import {MAX_HANG_MINUTES} from '../conditions/faults.ts';
import {poolsOf} from './money.ts';
import {isNewIncarnation, workersOf} from './nodes.ts';
import {type Actor, Check} from './violations.ts';

/** The age of the reads behind a create, and the silence after which a worker counts for no work. */
const READ_MINUTES = 6;
const SILENT_MS = 240_000;
const COMING = ['creating', 'booting', 'idle'];
const UNFINISHED = ['pending', 'in_progress'];
const OPEN_JOBS = ['pending', 'scheduled', 'running'];

export class Need extends Check {
  /** By pool: the TPUs that it needed at each change of its work. */
  readonly #needs = new Map<string, {at: number; count: number}[]>();
  /** By tick: the pools that the ticks before left out, and those that it has requested nodes for. */
  readonly #ticks = new WeakMap<NonNullable<Actor>, {late: string[]; asked: Set<string>}>();
  /** The pools that ticks have left out, by the time of their record. */
  #late: {at: number; pools: string[]}[] = [];

  override onCommitted(changed: readonly string[]): void {
    const jobs = `${this.context.config.jobs_collection}/`;
    this.#tick();
    this.#checkEvent(changed);
    const isWork = (path: string) => /^(runs|pools)\//.test(path) || path.startsWith(jobs);
    if (changed.some(isWork)) this.#note();
  }

  override onMinute(): void {
    this.#note();
  }

  #note(): void {
    const {now} = this.context.clockwork;
    for (const pool of poolsOf(this.context)) {
      const all = this.#needs.get(pool.pool) ?? [];
      const count = this.#needOf(pool);
      if (all.at(-1)?.count !== count) all.push({at: now, count});
      this.#needs.set(pool.pool, all);
    }
  }

  /** Unfinished streams of active runs and slices of jobs, or the TPUs to keep if they are more. */
  #needOf({pool, keep}: Pool): number {
    const {clockwork, config, store} = this.context;
    const runs = store.collection('runs').filter(({data}) => data.pool === pool && data.status === 'active');
    const streams = runs.flatMap(({path}) => store.collection(`${path}/streams`));
    const jobs = store
      .collection(config.jobs_collection)
      .filter(({data}) => data.pool === pool && OPEN_JOBS.includes(String(data.status)));
    const work =
      streams.filter(({data}) => UNFINISHED.includes(String(data.status))).length +
      jobs.reduce((slices, {data}) => slices + Number(data.slices ?? 1), 0);
    const kept = keep && Date.parse(keep.until_at) > clockwork.now ? keep.workers : 0;
    return Math.max(work, kept);
  }

  onWorker(name: string, before: Document, after: Document): void {
    if (!isNewIncarnation(before, after)) return;
    const pool = String(after.pool);
    this.#checkOrder(name, pool);
    if (after.is_canary || this.context.everAlone.size > 0) return;
    const used = workersOf(this.context.store).filter(worker => worker.pool === pool && this.#counts(worker));
    const most = this.#mostNeeded(pool);
    if (used.length > most)
      this.breach(`${name} is created as TPU ${used.length} of ${pool}, whose work needs ${most}`);
  }

  /** The tick that causes the present call. Two ticks may overlap: only pools that are late from its begin on are those that it knows. */
  #tick() {
    const {actor} = this.violations;
    if (!actor || !('at' in actor) || !this.violations.isBy('tick')) return undefined;
    const late = this.#late.findLast(({at}) => at <= actor.at)?.pools ?? [];
    const tick = this.#ticks.get(actor) ?? {late, asked: new Set<string>()};
    const are_late = (this.context.store.peek(paths.creates())?.late_pools ?? []) as string[];
    tick.late = tick.late.filter(pool => are_late.includes(pool));
    this.#ticks.set(actor, tick);
    return tick;
  }

  /** The pools that the last tick left out get their nodes first. */
  #checkOrder(name: string, pool: string): void {
    const tick = this.#tick();
    if (!tick) return;
    const earlier = [...tick.asked].filter(each => !tick.late.includes(each));
    if (tick.late.includes(pool) && earlier.length > 0)
      this.breach(`${name} is created after nodes of ${earlier}, and the last tick left ${tick.late} out`);
    tick.asked.add(pool);
  }

  /** The pools that an event says were left out are those that the next tick serves first. */
  #checkEvent(changed: readonly string[]): void {
    const {store} = this.context;
    const texts = changed.filter(path => path.startsWith('events/')).map(path => store.peek(path)?.text);
    const left = texts.map(text => / with other pools than (.*)\. The next tick/.exec(String(text))?.[1]);
    const names = left.find(found => found !== undefined);
    if (names === undefined) return;
    this.context.see('a tick was too slow for a pool');
    const {late_pools = []} = store.peek(paths.creates()) ?? {};
    if (names !== (late_pools as string[]).join(', '))
      this.breach(`a tick left out ${names}, and the next one serves ${JSON.stringify(late_pools)} first`);
  }

  /** A pool that two ticks in a row leave out went before the others in the second. */
  onCreates(before: Document | undefined, {creates, late_pools}: Document): void {
    this.#late.push({at: this.context.clockwork.now, pools: late_pools as string[]});
    const tick = this.#tick();
    const again = tick?.late.find(pool => (late_pools as string[]).includes(pool));
    const others = [...(tick?.asked ?? [])].filter(pool => !tick?.late.includes(pool));
    if (again !== undefined && creates === before?.creates && others.length > 0)
      this.breach(`${again} was left out by two ticks, and the second requested nodes of ${others}`);
  }

  /** The most TPUs that the pool needed since the oldest reads of a tick. */
  #mostNeeded(pool: string): number {
    const {clockwork, drawsOf, storm} = this.context;
    const isSlow = storm.hang > 0 || drawsOf.call(this.context, 'slow ticks') !== undefined;
    const since = clockwork.now - (isSlow ? 2 * MAX_HANG_MINUTES : READ_MINUTES) * 60_000;
    const all = this.#needs.get(pool) ?? [];
    const first = all.findLastIndex(({at}) => at < since);
    return Math.max(0, ...all.slice(Math.max(0, first)).map(({count}) => count));
  }

  /** True for a TPU that comes for work, or has some that is still to be done. */
  #counts({phase, work, suspect, heartbeat_at, provider_state, asked_at, is_canary}: Worker): boolean {
    const {clockwork, config, store} = this.context;
    const since = clockwork.now - SILENT_MS;
    if (suspect !== null || is_canary || (heartbeat_at !== null && Date.parse(heartbeat_at) < since))
      return false;
    const isUnseen = phase === 'creating' && provider_state === null && Date.parse(asked_at ?? '') < since;
    if (COMING.includes(phase)) return !isUnseen;
    if (phase !== 'working' || work === null) return false;
    const [run = '', stream] = work.split('/');
    if (stream !== undefined) {
      const status = store.peek(paths.stream(run, stream))?.status;
      return store.peek(paths.run(run))?.status === 'active' && UNFINISHED.includes(String(status));
    }
    return store
      .collection(config.jobs_collection)
      .some(({id, data}) => jobWork(id) === work && OPEN_JOBS.includes(String(data.status)));
  }

  override onWipe(): void {
    this.#needs.clear();
    this.#late = [];
  }
}
