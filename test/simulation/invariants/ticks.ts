/** Checks that two ticks in a row leave no common duty undone, and that no node outlives the last work. */

import {slotsOf} from '../../../shared/domain/fleet/slots.ts';
import {paths} from '../../../shared/domain/names.ts';
import type {Job} from '../../../shared/domain/records/job.ts';
import type {Pool} from '../../../shared/domain/records/pool.ts';
import {poolSettings} from '../../../shared/domain/records/pool-settings.ts';
import {isAlive, type Worker} from '../../../shared/domain/records/worker.ts';
import type {Document, Stored} from '../../../shared/ports/ports.ts';
import {STALE_MS, TAKEN} from '../../world/tpus.ts';
import {MAX_HANG_MINUTES, MAX_SKEW_MS} from '../conditions/faults.ts';
import type {Facts} from './facts.ts';
import type {Money} from './money.ts';
import {isUp, workersOf} from './nodes.ts';
import {Check, type Violations} from './violations.ts';

/** The start of a tick, and its duties at that time. */
export type StartedTick = {at: number; duties: Set<string>};

/**
 * Minutes that a TPU may outlive the last work. The work ends in the first. A tick deletes the TPU in the second. A tick sees in the
 * third that the TPU is gone.
 */
const ORPHAN_MINUTES = 3;

/** Time after which the word of a worker may be too old. */
const HEARTBEAT_LATE_S = 60;

const ENDED = ['SUSPENDED', 'FAILED'];
const REPAIRING = ['REPAIRING', 'RESTARTING', 'REIMAGING'];

/** Minutes of calm for which many orphans may stay: an hour from the first tick that sees them. */
const ORPHANS_WAIT_MINUTES = 60 + MAX_HANG_MINUTES + 5;

export class Ticks extends Check {
  readonly #money: Money;
  /** The duties that the last complete tick left undone, and its end. */
  #left: {at: number; undone: Set<string>} = {at: 0, undone: new Set()};
  #calmMinutes = 0;
  /** Minutes in a row with TPUs and without work. */
  #orphanMinutes = 0;
  /** Minutes in a row in which the pool of the deployment keeps TPUs without work. */
  #keptMinutes = 0;

  constructor(context: Facts, violations: Violations, money: Money) {
    super(context, violations);
    this.#money = money;
  }

  onTickStarted(): StartedTick {
    return {at: this.context.clockwork.now, duties: this.#duties()};
  }

  /** A tick may leave only duties that arose during the tick, so two ticks in a row leave no common duty. */
  onTickEnded({at, duties}: StartedTick): void {
    const left = this.#duties();
    const undone = new Set([...duties].filter(what => left.has(what)));
    const both = at > this.#left.at ? [...undone].filter(what => this.#left.undone.has(what)) : [];
    if (both.length !== 0) this.breach(`two ticks left it undone: ${both}`);
    this.#left = {at: this.context.clockwork.now, undone};
  }

  /** Duties: workers over budget, lost nodes, unneeded workers, and messages of operators that workers wait for. */
  #duties(): Set<string> {
    return new Set([
      ...this.#money.overBudget(),
      ...this.#lost(),
      ...this.#unneeded(),
      ...this.#notReplacedOrNotified(),
      ...this.#jobsBehindStreams(),
      ...this.#commandsOfTheDead(),
    ]);
  }

  #up(): Worker[] {
    return workersOf(this.context.store).filter(isUp);
  }

  #lost(): string[] {
    const {clockwork, config, tpus} = this.context;
    const repair_ms = config.limits.repair_s * 1000;
    return this.#up().flatMap(worker => {
      const {name, incarnation, zone, fault, phase_since_at, provider_since_at, missing_since_at} = worker;
      if (fault !== null) return [`${name}#${incarnation} has a fault: ${fault}`];
      // A list of a slow clock may count as older than the last change of the worker, and is then no evidence.
      const changed_ms = Math.max(
        Date.parse(phase_since_at),
        Date.parse(provider_since_at ?? phase_since_at),
      );
      if (changed_ms > clockwork.now - MAX_SKEW_MS) return [];
      const queued = tpus.queue.get(name);
      const isFromQueue = Number(queued?.request.labels['gleaner-incarnation']) === incarnation;
      if (isFromQueue && queued && ENDED.includes(queued.state) && !tpus.zone(zone).unreachable)
        return [`${name}#${incarnation} is ${queued.state}`];
      const node = tpus.nodes.get(name);
      const isOver = node && TAKEN.includes(node.state) && node.changed_at < clockwork.now - STALE_MS;
      const isListed = !tpus.zone(zone).unreachable && missing_since_at === null;
      const isSeen = Number(node?.metadata['gleaner-incarnation']) === incarnation && isListed;
      const repaired_ms = clockwork.now - Date.parse(provider_since_at ?? '');
      const isLost = node && REPAIRING.includes(node.state) && repaired_ms > repair_ms + 2 * MAX_SKEW_MS;
      return (isOver || isLost) && isSeen ? [`${name}#${incarnation} is ${node.state}`] : [];
    });
  }

  /** Workers that an operator recreates, and workers that are not yet notified of a paused or stopped run. */
  #notReplacedOrNotified(): string[] {
    const {store} = this.context;
    return this.#up().flatMap(({name, incarnation, recreate, work, epoch, drains}) => {
      if (recreate) return [`${name}#${incarnation} is to be recreated`];
      const status = work && store.peek(paths.run(work.split('/')[0] ?? ''))?.status;
      if (status === 'stopped')
        return [`${name} works on ${work} in epoch ${epoch}, and its run was stopped`];
      return status === 'paused' && !drains
        ? [`${name} works on ${work} in epoch ${epoch}, and its run is paused`]
        : [];
    });
  }

  /** Jobs that have waited for `job_wait_s` in a pool whose TPUs all have streams, and none gives its stream back. */
  #jobsBehindStreams(): string[] {
    const {clockwork, config, store, everAlone} = this.context;
    const since_ms =
      clockwork.now - (poolSettings.job_wait_s.default + 2 * HEARTBEAT_LATE_S) * 1000 - 2 * MAX_SKEW_MS;
    const heard = this.#up().filter(
      ({heartbeat_at, fault, phase}) =>
        fault === null && (phase === 'creating' || Date.parse(heartbeat_at ?? '') > since_ms),
    );
    return store.collection(config.jobs_collection).flatMap(({path, data}) => {
      const {status, pool, scheduled_at, attempts} = data as unknown as Job;
      const waits_since = Math.max(
        Date.parse(scheduled_at ?? ''),
        Date.parse(attempts?.at(-1)?.ended_at ?? scheduled_at ?? ''),
      );
      if (status !== 'scheduled' || everAlone.has(path) || !(waits_since < since_ms)) return [];
      const workers = heard.filter(worker => worker.pool === pool);
      const atStreams = workers.filter(({phase, work}) => phase === 'working' && work?.includes('/'));
      const isServed = workers.some(
        ({phase, drains, yields_to}) => ['booting', 'idle'].includes(phase) || drains || yields_to !== null,
      );
      return atStreams.length === 0 || isServed
        ? []
        : [`${path} waits, and no TPU of ${pool} gives a stream back`];
    });
  }

  /** Hosts that a command waits for, and whose incarnation has ended. */
  #commandsOfTheDead(): string[] {
    const {store} = this.context;
    const running = store
      .collection('execs')
      .filter(({data}) => data.status === 'running' && data.is_assigned);
    const hosts = running.flatMap(({id}) => store.collection(paths.execHosts(id)));
    return hosts.flatMap(({path, data}) => {
      const {worker, incarnation} = data;
      const found = store.peek(paths.worker(String(worker))) as Worker | undefined;
      const isThere = found?.incarnation === incarnation && isAlive(found as Worker);
      return isThere || data.ended_at !== null ? [] : [`${path} waits for ${worker}#${incarnation}`];
    });
  }

  /** Without work in an active run, an idle worker is not needed. A worker that has worked since is another duty. */
  #unneeded(): string[] {
    if (this.#hasWork(status => status === 'active')) return [];
    const late_ms = 2 * MAX_SKEW_MS;
    const staying = this.#up().filter(({phase}) => phase !== 'draining');
    return [...Map.groupBy(staying, ({pool}) => pool)]
      .flatMap(([pool, workers]) => (workers.length > this.#keptIn(pool, -late_ms) ? workers : []))
      .filter(({phase}) => ['creating', 'booting', 'idle'].includes(phase))
      .map(
        ({name, incarnation, phase, phase_since_at}) =>
          `${name}#${incarnation} is not needed, and is ${phase} since ${phase_since_at}`,
      );
  }

  /** TPUs that the pool keeps without work until `more_ms` from now or later. */
  #keptIn(pool: string, more_ms: number): number {
    const {clockwork, store} = this.context;
    const {keep} = (store.peek(paths.pool(pool)) ?? {}) as Pick<Pool, 'keep'>;
    return keep && Date.parse(keep.until_at) > clockwork.now + more_ms ? keep.workers : 0;
  }

  /** A TPU that its pool keeps outlives its last work. Budgets and ceilings may end it. */
  onIncarnationEnded(name: string, {cause_kind, last_phase}: Document): void {
    const {config, everAlone, hasSecondPool, store} = this.context;
    const {pool, max_budget_usd} = {...config.pool, ...config.ceilings};
    const slots = slotsOf((store.peek(paths.pool(pool)) ?? config.pool) as Pool).map(slot => slot.name);
    const mayGo = cause_kind !== 'not-needed' || last_phase !== 'idle' || !slots.includes(name);
    const isBudgeted = max_budget_usd !== null || store.peek(paths.pool(pool))?.budget_usd !== null;
    const since = this.context.storm.hang > 0 ? MAX_HANG_MINUTES : 3;
    if (mayGo || isBudgeted || hasSecondPool || everAlone.size > 0 || this.#keptMinutes < since) return;
    const others = this.#up().filter(worker => worker.name !== name).length;
    if (others < this.#keptIn(pool, MAX_HANG_MINUTES * 60_000))
      this.breach(`${name} was deleted as not needed, and its pool keeps TPUs: ${others} are left`);
  }

  /** In the calm, nodes that are not needed are deleted soon. */
  override onMinute(): void {
    const own = this.context.config.pool.pool;
    this.#keptMinutes = this.#keptIn(own, 0) > 0 ? this.#keptMinutes + 1 : 0;
    if (this.#keptMinutes === 1) this.context.see('a pool keeps TPUs without work');
    const {store, tpus, isCalm} = this.context;
    this.#calmMinutes = isCalm ? this.#calmMinutes + 1 : 0;
    const mayWait = this.#calmMinutes <= ORPHANS_WAIT_MINUTES && this.#isAnyOrphan();
    const isDone = !this.#isWorkOpen() && this.#keptMinutes === 0;
    const isIdle = this.#calmMinutes > MAX_HANG_MINUTES && isDone && !mayWait;
    // A worker that drains has its own limit, DRAIN_S.
    const isLeft = tpus.names().some(name => store.peek(paths.worker(name))?.phase !== 'draining');
    this.#orphanMinutes = isIdle && isLeft ? this.#orphanMinutes + 1 : 0;
    if (this.#orphanMinutes > ORPHAN_MINUTES)
      this.breach(`no work is left, and ${ORPHAN_MINUTES} minutes later there are nodes ${tpus.names()}`);
  }

  /** True if a node of Gleaner has no document, as after the Store was lost. */
  #isAnyOrphan(): boolean {
    const {store, tpus} = this.context;
    return tpus.names().some(name => !store.peek(paths.worker(name)));
  }

  #isWorkOpen(): boolean {
    return this.#hasWork(status => status !== 'stopped' && status !== 'paused');
  }

  /** True if a job has not ended, or a run with such a status has an unfinished stream. */
  #hasWork(isOpenStatus: (status: unknown) => boolean): boolean {
    const {config, store} = this.context;
    const isOver = ['completed', 'failed', 'cancelled'];
    if (store.collection(config.jobs_collection).some(({data}) => !isOver.includes(String(data.status))))
      return true;
    const isOpen = ({data}: Stored) => data.status === 'pending' || data.status === 'in_progress';
    return store
      .collection('runs')
      .some(({path, data}) => isOpenStatus(data.status) && store.collection(`${path}/streams`).some(isOpen));
  }

  override atTheEnd(): void {
    const {tpus} = this.context;
    if (tpus.names().length !== 0) this.breach(`TPUs are left: ${tpus.names()}`);
  }
}
