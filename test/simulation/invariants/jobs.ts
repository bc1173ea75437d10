/** Checks jobs: one holder, each attempt recorded once, a final state that only people reopen, and an end of every job. */

import {downloadsOf, JOBS, totalOf} from '../../../shared/domain/billing/cost.ts';
import type {Job, JobStatus} from '../../../shared/domain/job/job.ts';
import {jobWork, parseJobWork, paths} from '../../../shared/domain/names.ts';
import type {Costs} from '../../../shared/domain/worker/worker.ts';
import type {Document} from '../../../shared/ports.ts';
import type {Lease} from './leases.ts';
import {Check} from './violations.ts';

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

/** Causes that a job owes to itself: the others cost it no retry. */
const OWN = ['exit', 'timeout', 'memory', 'output', 'result'];

export class Jobs extends Check {
  /** `before` of a document that the control plane has not completed yet is what a person wrote. */
  onJob(path: string, before: Document | undefined, after: Document): void {
    const job = after as unknown as Job;
    if (this.violations.actor === undefined) return; // a person
    this.context.see(`a job is: ${job.status}`);
    if (before === undefined && !this.#isMessage) this.breach(`${path} was created by no message`);
    // A message writes the document as people do, and its handler completes it.
    if (job.epoch === undefined) return;
    this.#checkShape(path, job);
    if (!before || before.epoch === undefined) return;
    const was = before as unknown as Job;
    this.#checkSteps(path, was, job);
    this.#checkAttempts(path, was, job);
    this.#checkActor(path, was, job);
  }

  get #isMessage(): boolean {
    return this.violations.isBy('control');
  }

  #checkShape(path: string, {status, lease, queue, epoch, due_at}: Job): void {
    if ((status === 'running') !== (lease !== null) || (lease !== null && lease.epoch !== epoch))
      this.breach(`${path} is ${status} in epoch ${epoch} with lease ${JSON.stringify(lease)}`);
    if ((status === 'scheduled') !== (queue !== null))
      this.breach(`${path} is ${status} with the place ${queue}`);
    if (status === 'running' && due_at === null) this.breach(`${path} runs without an end`);
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
    if (lease?.worker !== request.worker || lease.incarnation !== request.incarnation)
      this.breach(
        `${path}, leased to ${JSON.stringify(lease)}, is ${job.status} by ${JSON.stringify(request)}`,
      );
  }

  /** The time of a worker with a job is billed to the payer of jobs. */
  onWorker(name: string, before: Document, after: Document): void {
    this.#checkYield(name, before, after);
    const {work, incarnation, costs} = before;
    if (parseJobWork(work as string | null) === undefined || after.incarnation !== incarnation) return;
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
    for (const path of changed) {
      if (/^workers\/[^/]+$/.test(path)) this.#checkLeftBehind(path);
      const job = path.startsWith(`${config.jobs_collection}/`) ? store.peek(path) : undefined;
      if (!job) continue;
      this.#checkMachine(path, job, changed);
      if (!job.lease) continue;
      const {worker} = job.lease as Lease;
      if (job.pool !== config.pool.pool) this.context.see('the second pool has: a job');
      if (job.pool !== store.peek(paths.worker(worker))?.pool)
        this.breach(`${path} of the pool ${job.pool} is leased to ${worker}`);
    }
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
    const {config, store, submitted} = this.context;
    for (const [id, {course, isDeleted, max_retries}] of submitted) {
      const job = store.peek(paths.job(config.jobs_collection, id)) as unknown as Job | undefined;
      if (isDeleted) {
        if (job !== undefined) this.breach(`${id} was deleted, and is ${job?.status}`);
        continue;
      }
      if (job === undefined || !FINAL.includes(job.status))
        this.breach(`${id} (${course}) is ${job?.status} at the end`);
      if (!job?.attempts || job.status === 'cancelled') continue;
      const own = job.attempts.filter(({cause}) => OWN.includes(String(cause))).length;
      const isMachine = job.cause === 'machine';
      const isRight =
        course === 'works'
          ? job.status === 'completed' || isMachine
          : course === 'invalid'
            ? job.cause === 'invalid'
            : course === 'deadly'
              ? isMachine
              : isMachine || (job.status === 'failed' && own > max_retries);
      if (!isRight) this.breach(`${id} (${course}) is ${job.status}: ${job.cause} ${job.error}`);
    }
  }
}

function without(costs: Costs, ...payers: string[]): Costs {
  return Object.fromEntries(Object.entries(costs).filter(([each]) => !payers.includes(each)));
}

export function resultOf(job: string, epoch: number): string {
  return `${job} of epoch ${epoch}`;
}
