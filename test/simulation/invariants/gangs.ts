/** Checks that smaller jobs pass no job of several slices for ever, and that no slice waits for others again and again. */

import {isWaiting, queuePlace} from '../../../shared/domain/job/queue.ts';
import {parseWorkerName, paths} from '../../../shared/domain/names.ts';
import {type Job, waitsSince} from '../../../shared/domain/records/job.ts';
import type {Pool} from '../../../shared/domain/records/pool.ts';
import {poolSettings} from '../../../shared/domain/records/pool-settings.ts';
import type {Worker} from '../../../shared/domain/records/worker.ts';
import type {Document} from '../../../shared/ports/ports.ts';
import {MAX_HANG_MINUTES} from '../conditions/faults.ts';
import {workersOf} from './nodes.ts';
import {Check} from './violations.ts';

const JOB_WAIT_MS = poolSettings.job_wait_s.default * 1000;
const MINUTE_MS = 60_000;

export class Gangs extends Check {
  /** Incarnations that had work. */
  readonly #worked = new Set<string>();
  /** By pool: the time of the last change of its slots. */
  readonly #resized = new Map<string, number>();
  /** By pool: since when jobs of several slices wait without an attempt of any, and the slices that have waited in vain since. */
  readonly #waits = new Map<string, {since: number; lives: number}>();

  onPool(name: string, before: Document | undefined, after: Document): void {
    const isSame = before?.zones === after.zones && before?.workers_per_zone === after.workers_per_zone;
    if (!isSame) this.#resized.set(name, this.context.clockwork.now);
  }

  onJob(path: string, was: Job, job: Job): void {
    const isGranted = job.status === 'running' && job.epoch > was.epoch;
    const wait = this.#waits.get(job.pool);
    if (this.#waiting(job.pool).length === 0 || (job.slices > 1 && isGranted)) this.#waits.delete(job.pool);
    else if (!wait) this.#waits.set(job.pool, {since: this.context.clockwork.now, lives: 0});
    if (isGranted && was.status === 'scheduled' && job.slices === 1) this.#checkPassed(path, was, job);
  }

  /** Waiting jobs of several slices, in their order. */
  #waiting(pool: string): Job[] {
    const {config, everAlone, store} = this.context;
    const stored = store.collection(config.jobs_collection).filter(({path}) => !everAlone.has(path));
    const jobs = stored.map(({data}) => data as unknown as Job);
    const gangs = jobs.filter(job => job.pool === pool && job.slices > 1 && isWaiting(job));
    return gangs.sort((a, b) => (queuePlace(a) < queuePlace(b) ? -1 : 1));
  }

  /** A job that has waited for `job_wait_s` gets the slots that come free: only as many as are left beside it go to jobs behind it. */
  #checkPassed(path: string, was: Job, {pool, lease}: Job): void {
    const {clockwork, config, storm, store} = this.context;
    const {workers_per_zone = 0} = (store.peek(paths.pool(pool)) ?? {}) as Partial<Pool>;
    const first = this.#waiting(pool).find(({slices}) => slices <= workers_per_zone);
    const zoneOf = (worker = '') => parseWorkerName(worker)?.zone;
    const zone = zoneOf(lease?.worker);
    const slots = workersOf(store).filter(worker => worker.pool === pool && worker.zone === zone);
    const isOpen = ({held, blocked_until_at, phase}: Worker) =>
      !held && blocked_until_at === null && phase !== 'draining';
    if (!first || !(queuePlace(first) < String(was.queue)) || !slots.every(isOpen)) return;
    const late_ms = (storm.hang > 0 ? MAX_HANG_MINUTES : 3) * MINUTE_MS;
    const pauses = this.#waiting(pool).flatMap(({reservation_timeouts}) =>
      Object.values(reservation_timeouts),
    );
    const free_ms = Math.max(0, ...pauses.map(({next_at}) => Date.parse(next_at)));
    const waits_ms = Math.max(Date.parse(waitsSince(first)), this.#resized.get(pool) ?? 0) + JOB_WAIT_MS;
    const since = Math.max(free_ms, waits_ms) + late_ms;
    if (since > clockwork.now) return;
    const passed = store
      .collection(config.jobs_collection)
      .map(({data}) => data as unknown as Job)
      .filter(job => job.pool === pool && job.slices === 1 && zoneOf(job.lease?.worker) === zone)
      .filter(({started_at}) => Date.parse(started_at ?? '') > since);
    if (passed.length > workers_per_zone - first.slices)
      this.breach(
        `${path} and ${passed.length - 1} others pass ${first.job} of ${first.slices} slices in ${zone}`,
      );
  }

  onWorker(name: string, before: Document, after: Document): void {
    const life = `${name}#${after.incarnation}`;
    if (after.work !== null) this.#worked.add(life);
    const wait = this.#waits.get(String(after.pool));
    const isEnd = before.phase === 'idle' && after.phase === 'deleting' && !this.#worked.has(life);
    const boot_ms = this.context.config.limits.boot_s * 1000;
    const idle_ms = this.context.clockwork.now - Date.parse(String(before.phase_since_at));
    if (!wait || !isEnd || after.held || before.recreate || idle_ms < 0.9 * boot_ms) return;
    this.context.see('a slice waits for others in vain');
    wait.lives += 1;
    // Each time costs two slices at most, and the pause after it doubles.
    const times = Math.log2((this.context.clockwork.now - wait.since) / boot_ms + 1) + 1;
    if (wait.lives > 2 * (times + 1))
      this.breach(`${wait.lives} slices of ${after.pool} have waited in vain since ${wait.since}`);
  }

  /** In the calm, a slice is idle for some jobs in turn, and then goes, while a larger job waits. */
  override onMinute(): void {
    const {clockwork, config, store} = this.context;
    const limit_ms = 4 * config.limits.boot_s * 1000 + 5 * MINUTE_MS;
    const held = store.collection('zones').some(({data}) => data.silence_guard !== null);
    if (held || !this.context.isSettled(limit_ms)) return;
    for (const {name, pool, host_count, phase, phase_since_at} of workersOf(store)) {
      const idle_ms = clockwork.now - Date.parse(phase_since_at);
      if (host_count > 1 && phase === 'idle' && idle_ms > limit_ms && this.#waits.has(pool))
        this.breach(`${name} is idle for ${idle_ms} ms, and a job of several slices waits`);
    }
  }

  override onWipe(): void {
    this.#waits.clear();
  }
}
