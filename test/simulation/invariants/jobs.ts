/** Checks jobs: one holder, each attempt recorded once, a final state that only people reopen, and an end of every job. */

import {downloadsOf, JOBS, totalOf} from '../../../shared/domain/billing/cost.ts';
import {jobWork, parseJobWork, parseWorkerName, paths} from '../../../shared/domain/names.ts';
import type {Job, JobStatus} from '../../../shared/domain/records/job.ts';
import {type Costs, isAlive, type Worker} from '../../../shared/domain/records/worker.ts';
import type {Document} from '../../../shared/ports/ports.ts';
import {MAX_HANG_MINUTES, MAX_SKEW_MS} from '../conditions/faults.ts';
import {RISE} from '../conditions/prices.ts';
import type {Lease} from './leases.ts';
import {usdPerHourIn} from './money.ts';
import {workersOf} from './nodes.ts';
import {Check, type WorkerRequest} from './violations.ts';

/** The grace of a timeout, the machines that a job may end, and the least time for which an ended job is kept: repeated here. */
const GRACE_MS = 180_000;
const MOST_MACHINES = 5;
const KEPT_MS = 7 * 86_400_000;
/** Two milliseconds: instants are rounded. */
const ROUNDING_H = 0.002 / 3600;
/** Time after which a due job must have ended: the tick of each minute ends it. */
const DUE_MS = 4 * 60_000;

/** A tick of each quarter of an hour compares the running jobs with the workers, and a job that it misses waits for the next. */
const UNHELD_MINUTES = 17;

const FINAL: JobStatus[] = ['completed', 'failed', 'cancelled'];

/** Changes of the status that the control plane makes by itself. */
const STEPS: Record<JobStatus, JobStatus[]> = {
  pending: ['scheduled', 'failed', 'cancelled'],
  scheduled: ['running', 'failed', 'cancelled'],
  running: ['scheduled', ...FINAL],
  completed: [],
  failed: [],
  cancelled: [],
};

/** The status after an attempt that does not end the job. */
const NEXT: Record<string, JobStatus> = {
  completed: 'completed',
  cancelled: 'cancelled',
  preempted: 'scheduled',
  drained: 'scheduled',
  failed: 'scheduled',
};
/** Causes that a job owes to itself: the others cost it no retry. */
const OWN = ['exit', 'timeout', 'memory', 'disk', 'output', 'result'];

export class Jobs extends Check {
  /** Running jobs that no worker holds, and for how many minutes in a row. */
  #unheld = new Map<string, number>();
  /** Of one commit: living workers whose job ends without a request, and the last claim of each. */
  #lost: {job: string; worker: string; claimed_at: string}[] = [];

  /** `before` of a document that the control plane has not completed yet is what a person wrote. */
  onJob(path: string, before: Document | undefined, after: Document): void {
    const job = after as unknown as Job;
    if (this.violations.actor === undefined) return; // a person
    this.context.see(`a job is: ${job.status}`);
    if (before === undefined && !this.#isMessage) this.breach(`${path} was created by no message`);
    // A message writes the document as people do, and its handler completes it.
    if (job.epoch === undefined) return;
    this.#checkShape(path, job);
    this.#checkEnd(path, job);
    if (!before || before.epoch === undefined) return;
    const was = before as unknown as Job;
    this.#checkSteps(path, was, job);
    this.#checkAttempts(path, was, job);
    this.#checkVerdict(path, was, job);
    if (job.status === 'running' && job.epoch > was.epoch) {
      this.#checkGrant(path, job);
      // A worker that asks again for its job gets it again.
      if (was.status === 'scheduled') this.#checkOrder(job);
    }
    this.#checkActor(path, was, job);
  }

  get #isMessage(): boolean {
    return this.violations.isBy('control');
  }

  #checkShape(path: string, {status, lease, queue, epoch, due_at, deadline_at, cancelled_at}: Job): void {
    if (cancelled_at && status !== 'running') this.breach(`${path} was cancelled, and is ${status}`);
    if ((status === 'running') !== (lease !== null) || (lease !== null && lease.epoch !== epoch))
      this.breach(`${path} is ${status} in epoch ${epoch} with lease ${JSON.stringify(lease)}`);
    if ((status === 'scheduled') !== (queue !== null))
      this.breach(`${path} is ${status} with the place ${queue}`);
    if (status === 'scheduled' && due_at !== deadline_at)
      this.breach(`${path} waits until ${deadline_at}, and is due at ${due_at}`);
    if (status === 'running' && due_at === null) this.breach(`${path} runs without an end`);
  }

  /** An ended job has its end and is kept, and only a completed one has a result. */
  #checkEnd(path: string, job: Job): void {
    const {status, completed_at, expire_at, due_at, result, cause, deadline_at, budget_usd, spent_usd} = job;
    const isFinal = FINAL.includes(status);
    const {now} = this.context.clockwork;
    if (isFinal !== (completed_at !== null) || (isFinal && due_at !== null))
      this.breach(`${path} is ${status}, completed at ${completed_at} and due at ${due_at}`);
    if (isFinal && !(Date.parse(String(expire_at)) > now + KEPT_MS))
      this.breach(`${path} is ${status}, and expires at ${expire_at}`);
    // No person of a world writes this time.
    if (!isFinal && expire_at !== null) this.breach(`${path} is ${status}, and expires at ${expire_at}`);
    if (status !== 'completed' && result !== null) this.breach(`${path} is ${status} with a result`);
    if (!isFinal) return;
    if (cause === 'deadline' && !(Date.parse(deadline_at ?? '') < now + MAX_SKEW_MS))
      this.breach(`${path} ended at its deadline ${deadline_at}`);
    if (cause === 'budget' && !(budget_usd !== null && spent_usd > budget_usd * 0.99))
      this.breach(`${path} ended for its budget of $${budget_usd}, with $${spent_usd}`);
  }

  /** The end of an attempt decides what follows, and the document says what the worker said. */
  #checkVerdict(path: string, was: Job, job: Job): void {
    const last = job.attempts.at(-1);
    if (job.attempts.length === was.attempts.length || !last || !was.lease) return;
    const isOwn = last.outcome === 'failed' && OWN.includes(String(last.cause));
    const isMachine = last.outcome === 'failed' && ['machine', 'tpu'].includes(String(last.cause));
    const [failures, machines] = [was.failures + Number(isOwn), was.machine_failures + Number(isMachine)];
    if (job.failures !== failures || job.machine_failures !== machines)
      this.breach(`${path} counts ${job.failures}+${job.machine_failures}, not ${failures}+${machines}`);
    const mayRetry = isOwn ? failures <= job.max_retries : machines < MOST_MACHINES;
    const isOver = last.outcome === 'failed' && (!(isOwn || isMachine) || !mayRetry);
    const next = isOver ? 'failed' : NEXT[last.outcome];
    // The next grant may follow at once, or show that the job may not run again.
    const isNext =
      job.status === next ||
      (next === 'scheduled' &&
        (job.status === 'running' || ['deadline', 'budget'].includes(String(job.cause))));
    if (!isNext) this.breach(`${path} is ${job.status} after ${last.outcome}: ${last.cause}`);
    const {epoch, worker, incarnation} = was.lease;
    const isOfLease = last.epoch === epoch && last.worker === worker && last.incarnation === incarnation;
    if (!isOfLease || last.started_at !== was.started_at || last.ended_at < last.started_at)
      this.breach(`${path} has the attempt ${JSON.stringify(last)} of ${JSON.stringify(was.lease)}`);
    const {request} = this.violations;
    const slices = Number(was.slices ?? 1);
    if (request?.action !== 'finish' || Number(was.lease.host_count) > 1) this.#checkCost(path, last, slices);
    else this.#checkReport(path, job, request);
  }

  #checkReport(path: string, job: Job, {outcome, cause, error, exit_code}: WorkerRequest): void {
    const last = job.attempts.at(-1);
    const said = [outcome, cause, error, exit_code];
    const told = [last?.outcome, last?.cause, last?.error, last?.exit_code];
    const isPreempted = outcome === 'preempted' || outcome === 'drained';
    // Whatever the end of a cancelled attempt, only its success counts.
    const isCancelled = last?.outcome === 'cancelled' && outcome !== 'completed';
    if (!isCancelled && (outcome !== last?.outcome || (!isPreempted && said.join() !== told.join())))
      this.breach(`${path} has ${told}, and its worker said ${said}`);
    if (
      job.status === 'failed' &&
      (job.error !== error || job.cause !== cause || job.exit_code !== exit_code)
    )
      this.breach(`${path} is failed for ${job.cause}: ${job.error} (${job.exit_code})`);
    if (last) this.#checkCost(path, last);
  }

  /** An attempt costs its time at the price of its zone, which rises in some worlds. */
  #checkCost(
    path: string,
    {started_at, ended_at, cost_usd, worker}: Job['attempts'][number],
    slices = 1,
  ): void {
    const hours = (Date.parse(ended_at) - Date.parse(started_at)) / 3_600_000;
    const hosts = this.context.store.peek(paths.worker(worker))?.host_count ?? 1;
    const usd = slices * usdPerHourIn(parseWorkerName(worker)?.zone ?? '', Number(hosts));
    const {clockwork, rise} = this.context;
    const most = clockwork.now < rise.since_ms - MAX_SKEW_MS ? 1 : RISE;
    const [least_usd, most_usd] = [(hours - ROUNDING_H) * usd, most * (hours + ROUNDING_H) * usd];
    if (cost_usd !== null && !(cost_usd > least_usd && cost_usd < most_usd))
      this.breach(`${path} has an attempt of ${hours} hours for $${cost_usd}`);
  }

  /** A job is due at its deadline, its timeout or the end of its budget. */
  #checkGrant(path: string, {started_at, due_at, timeout, ...bounds}: Job): void {
    const {deadline_at, budget_usd, spent_usd, lease} = bounds;
    const {store} = this.context;
    const started_ms = Date.parse(started_at ?? '');
    const price = bounds.slices * Number(store.peek(paths.worker(lease?.worker ?? ''))?.usd_per_hour);
    const ends = [started_ms + timeout * 1000 + GRACE_MS, Date.parse(deadline_at ?? '9999-01-01')];
    if (budget_usd !== null && price > 0)
      ends.push(started_ms + ((budget_usd - spent_usd) / price) * 3_600_000);
    if (!(Math.abs(Date.parse(due_at ?? '') - Math.min(...ends)) < 1000))
      this.breach(`${path} is due at ${due_at}, and not at ${new Date(Math.min(...ends)).toISOString()}`);
    if (deadline_at !== null && Date.parse(deadline_at) <= started_ms)
      this.breach(`${path} starts at ${started_at}, after its deadline ${deadline_at}`);
    if (budget_usd !== null && spent_usd >= budget_usd)
      this.breach(`${path} is granted with $${spent_usd} of $${budget_usd}`);
  }

  /** A job goes before jobs of a lower priority. */
  #checkOrder({job, pool, priority}: Job): void {
    const {clockwork, config, everAlone, storm, store} = this.context;
    const since = clockwork.now - (storm.hang > 0 ? MAX_HANG_MINUTES : 3) * 60_000;
    const first = store.collection(config.jobs_collection).find(
      ({path: other, data}) =>
        data.status === 'scheduled' &&
        data.pool === pool &&
        // A job of several slices waits until all of them are idle together.
        (data.slices ?? 1) === 1 &&
        Number(data.priority) > priority &&
        Date.parse(String(data.updated_at)) < since &&
        !everAlone.has(other),
    );
    if (first)
      this.breach(`${job} of priority ${priority} is granted before ${first.id} of ${first.data.priority}`);
  }

  /** In the calm, a due job ends soon, and so does the attempt of a job that no worker holds. */
  override onMinute(): void {
    const {clockwork, config, everAlone, store} = this.context;
    if (!this.context.isSettled(DUE_MS)) return;
    this.#checkHolders();
    for (const {path, data} of store.collection(config.jobs_collection)) {
      const late_ms = clockwork.now - Date.parse(String(data.due_at));
      if (late_ms > DUE_MS && !everAlone.has(path))
        this.breach(`${path} is ${data.status} ${late_ms} ms after it was due`);
    }
  }

  #checkHolders(): void {
    const {config, store} = this.context;
    const before = this.#unheld;
    this.#unheld = new Map();
    for (const {path, id, data} of store.collection(config.jobs_collection)) {
      const lease = data.lease as Lease | null;
      const holder = store.peek(paths.worker(lease?.worker ?? ''));
      const isHeld = holder?.work === jobWork(id) && holder.incarnation === lease?.incarnation;
      if (!lease || isHeld) continue;
      const minutes = (before.get(path) ?? 0) + 1;
      this.#unheld.set(path, minutes);
      if (minutes > UNHELD_MINUTES)
        this.breach(`${path} runs without a holder for ${minutes} minutes: ${JSON.stringify(lease)}`);
    }
  }

  #checkSteps(path: string, was: Job, job: Job): void {
    const isReopened = FINAL.includes(was.status) && !FINAL.includes(job.status);
    const isRetry = this.#isMessage && was.status !== 'completed' && job.status === 'scheduled';
    if (was.status !== job.status && !STEPS[was.status].includes(job.status) && (!isReopened || !isRetry))
      this.breach(`${path} went from ${was.status} to ${job.status}`);
    // A worker that asks again for its job gets it again, in a new epoch.
    const isAgain = was.lease?.worker === job.lease?.worker && this.violations.request?.action === 'lease';
    const isGranted = job.status === 'running' && (was.status === 'scheduled' || isAgain);
    if (job.epoch !== was.epoch + (isGranted ? 1 : 0))
      this.breach(`${path} went from epoch ${was.epoch} to ${job.epoch}, ${was.status} to ${job.status}`);
    const isPreemption = ['preempted', 'drained'].includes(String(job.attempts.at(-1)?.cause));
    if (job.failures > was.failures && isPreemption) this.breach(`${path} was charged for a preemption`);
    if (job.failures - was.failures > 1 || (job.failures < was.failures && !this.#isMessage))
      this.breach(`${path} had ${was.failures} failures and has ${job.failures}`);
  }

  /** An attempt is recorded when its lease ends, once, and at most one attempt completes the job. */
  #checkAttempts(path: string, was: Job, job: Job): void {
    const hasEnded = was.lease !== null && job.lease?.epoch !== was.lease.epoch;
    const added = job.attempts.length - was.attempts.length;
    if (added !== (hasEnded ? 1 : 0))
      this.breach(`${path} has ${added} attempts more, and its lease ${hasEnded ? 'ended' : 'goes on'}`);
    const cost_usd = added > 0 ? (job.attempts.at(-1)?.cost_usd ?? 0) : 0;
    if (!(Math.abs(job.spent_usd - was.spent_usd - cost_usd) < 1e-9))
      this.breach(
        `${path} had spent $${was.spent_usd} and has $${job.spent_usd}, with an attempt of $${cost_usd}`,
      );
    const epochs = job.attempts.map(({epoch}) => epoch);
    if (new Set(epochs).size !== epochs.length) this.breach(`${path} has the attempts ${epochs.join(', ')}`);
    const completed = job.attempts.filter(({outcome}) => outcome === 'completed');
    const isRight = completed[0] === undefined || job.result === resultOf(job.job, completed[0].epoch);
    if ((job.status === 'completed') !== (completed.length === 1) || !isRight)
      this.breach(`${path} is ${job.status} with the result ${job.result} of ${completed.length} attempts`);
  }

  /** The request of a worker changes only the job that this worker holds, or that it is granted. */
  #checkActor(path: string, {lease, status}: Job, job: Job): void {
    const {request} = this.violations;
    if (!request || request.action === 'lease' || status === 'scheduled') return;
    const claimed = request.lease && 'job' in request.lease ? request.lease.epoch : lease?.epoch;
    const isHolder = [lease, ...(lease?.members ?? [])].some(
      held => held?.worker === request.worker && held.incarnation === request.incarnation,
    );
    if (!isHolder || lease?.epoch !== claimed)
      this.breach(
        `${path}, leased to ${JSON.stringify(lease)}, is ${job.status} by ${JSON.stringify(request)}`,
      );
  }

  /** The time of a worker with a job is billed to the payer of jobs. */
  onWorker(name: string, before: Document, after: Document): void {
    this.#checkYield(name, before, after);
    const {work, incarnation, costs, claimed_at, host_count = 1} = before;
    const job = parseJobWork(work as string | null);
    if (job === undefined || after.incarnation !== incarnation) return;
    const isLost = after.work !== work && !this.violations.request && isAlive(after as unknown as Worker);
    // An attempt on several hosts ends with the host that is lost.
    if (isLost && host_count === 1 && typeof claimed_at === 'string')
      this.#lost.push({job, worker: name, claimed_at});
    const [was, is] = [costs, after.costs].map(each =>
      totalOf(without(each as Costs, JOBS, downloadsOf(JOBS))),
    );
    if (!(Number(is) <= Number(was) + 1e-9))
      this.breach(`${name} has ${work}, and bills others than jobs: ${JSON.stringify([costs, after.costs])}`);
  }

  /** Only a tick decides that a worker gives its stream back for a job. A request of the worker changes nothing of that until its work ends. */
  #checkYield(name: string, before: Document, after: Document): void {
    const isSameWork = before.work === after.work && before.epoch === after.epoch;
    if (before.yields_to === after.yields_to || after.incarnation !== before.incarnation) return;
    if (typeof after.yields_to === 'string') this.context.see('a worker gives its stream back for a job');
    if (after.yields_to !== null && (after.work === null || parseJobWork(String(after.work)) !== undefined))
      this.breach(`${name} gives ${after.work} back for the job ${after.yields_to}`);
    if (isSameWork && this.violations.request)
      this.breach(`${name} has ${after.work}, and a request changed yields_to to ${after.yields_to}`);
  }

  /** True if a person deletes the document, or a message of a person. */
  get mayBeDeleted(): boolean {
    return this.violations.actor === undefined || this.#isMessage;
  }

  /** After a commit, a job and its worker are of one pool. */
  override onCommitted(changed: readonly string[]): void {
    const {config, store} = this.context;
    this.#checkClaims();
    for (const path of changed) {
      if (/^workers\/[^/]+$/.test(path)) this.#checkLeftBehind(path);
      const job = path.startsWith(`${config.jobs_collection}/`) ? store.peek(path) : undefined;
      if (!job) continue;
      this.#checkMachine(path, job, changed);
      if (!job.lease) this.#checkLetGo(path, String(job.job));
      if (!job.lease) continue;
      const {worker} = job.lease as Lease;
      if (job.pool !== config.pool.pool) this.context.see('the second pool has: a job');
      if (job.pool !== store.peek(paths.worker(worker))?.pool)
        this.breach(`${path} of the pool ${job.pool} is leased to ${worker}`);
    }
  }

  /** A job that ends or waits again has left its worker in the same commit. */
  #checkLetGo(path: string, id: string): void {
    const holder = workersOf(this.context.store).find(({work}) => work === jobWork(id));
    if (holder && !this.context.everAlone.has(path))
      this.breach(`${path} has no lease, and ${holder.name} works on it in epoch ${holder.epoch}`);
  }

  /** A living worker with a recent claim is no lost machine. */
  #checkClaims(): void {
    const {clockwork, config, store} = this.context;
    for (const {job, worker, claimed_at} of this.#lost) {
      const {attempts = [], slices = 1} = store.peek(paths.job(config.jobs_collection, job)) ?? {};
      const last = (attempts as Job['attempts']).at(-1);
      const silent_ms = clockwork.now - Date.parse(claimed_at);
      const isCharged = slices === 1 && last?.worker === worker && last.cause === 'machine';
      if (isCharged && !(silent_ms > config.lease_s * 1000 - 2 * MAX_SKEW_MS))
        this.breach(`${worker} is lost to ${job}, and had claimed it ${silent_ms} ms before: ${last.error}`);
    }
    this.#lost = [];
  }

  /** A worker that loses its job frees it in the same commit. */
  #checkLeftBehind(path: string): void {
    const {config, store} = this.context;
    const {work, incarnation} = store.peek(path) ?? {};
    for (const {path: job, id, data} of store.collection(config.jobs_collection)) {
      const lease = data.lease as Lease | null | undefined;
      const isTheirs = lease && paths.worker(lease.worker) === path && lease.incarnation === incarnation;
      if (isTheirs && work !== jobWork(id) && !this.context.everAlone.has(job))
        this.breach(`${job} is leased to ${JSON.stringify(lease)}, and that worker has ${work}`);
    }
  }

  /** A preemption is no fault of a machine. */
  #checkMachine(path: string, {attempts = [], lease}: Document, changed: readonly string[]): void {
    const last = (attempts as Job['attempts']).at(-1);
    const record = last && paths.attempt(last.worker, last.incarnation);
    if (lease || last?.cause !== 'machine' || !record || !changed.includes(record)) return;
    if (this.context.store.peek(record)?.cause_kind === 'taken')
      this.breach(`${path} was charged for ${last.worker}, which was taken: ${last.error}`);
  }

  /** Every job has ended, and in the way of its course. A deleted job is not made again. */
  override atTheEnd(): void {
    const {config, storm, store, submitted} = this.context;
    for (const [id, {course, isBounded, isDeleted, max_retries}] of submitted) {
      const job = store.peek(paths.job(config.jobs_collection, id)) as unknown as Job | undefined;
      if (isDeleted) {
        if (job !== undefined) this.breach(`${id} was deleted, and is ${job?.status}`);
        continue;
      }
      if (job === undefined || !FINAL.includes(job.status))
        this.breach(`${id} (${course}) is ${job?.status} at the end`);
      if (!job?.attempts || job.status === 'cancelled') continue;
      const own = job.attempts.filter(({cause}) => OWN.includes(String(cause))).length;
      const isMachine = job.cause === 'machine' || job.cause === 'tpu';
      const isRight =
        course === 'works'
          ? job.status === 'completed' || isMachine
          : course === 'invalid'
            ? job.cause === 'invalid'
            : course === 'deadly' || course === 'restarts'
              ? isMachine
              : course === 'broken'
                ? isMachine || job.cause === 'setup'
                : isMachine || (job.status === 'failed' && own > max_retries);
      // The document of the job took no end before its timeout while it was left alone.
      const wasAlone = this.context.everAlone.has(paths.job(config.jobs_collection, id));
      const isCut =
        (isBounded === true && ['deadline', 'budget'].includes(String(job.cause))) ||
        (wasAlone && job.cause === 'timeout');
      // A word of a dead machine may arrive late.
      const isLate = course === 'deadly' && storm.late > 0 && job.cause === 'timeout';
      if (!isRight && !isCut && !isLate)
        this.breach(`${id} (${course}) is ${job.status}: ${job.cause} ${job.error}`);
    }
  }
}

function without(costs: Costs, ...payers: string[]): Costs {
  return Object.fromEntries(Object.entries(costs).filter(([each]) => !payers.includes(each)));
}

export function resultOf(job: string, epoch: number): string {
  return `${job} of epoch ${epoch}`;
}
