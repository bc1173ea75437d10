/** Checks jobs: one holder, each attempt recorded once, a final state that only people reopen, and an end of every job. */

import {JOBS, totalOf} from '../../../shared/domain/billing/cost.ts';
import type {Job, JobStatus} from '../../../shared/domain/job/job.ts';
import {jobWork, parseJobWork, paths} from '../../../shared/domain/names.ts';
import type {Costs} from '../../../shared/domain/worker/worker.ts';
import type {Document} from '../../../shared/ports.ts';
import type {Context} from '../context.ts';
import type {Lease} from './leases.ts';
import type {Violations} from './violations.ts';

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

export class Jobs {
  readonly #context: Context;
  readonly #violations: Violations;

  constructor(context: Context, violations: Violations) {
    this.#context = context;
    this.#violations = violations;
  }

  /** `before` of a document that the control plane has not completed yet is what a person wrote. */
  onJob(path: string, before: Document | undefined, after: Document): void {
    const job = after as unknown as Job;
    if (this.#violations.actor === undefined) return; // a person
    this.#context.see(`a job is: ${job.status}`);
    this.#violations.check(
      before !== undefined || this.#isMessage,
      () => `${path} was created by no message`,
    );
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
    return this.#violations.isBy('control');
  }

  #checkShape(path: string, {status, lease, queue, epoch, due_at}: Job): void {
    const {check} = this.#violations;
    check.call(
      this.#violations,
      (status === 'running') === (lease !== null) && (lease === null || lease.epoch === epoch),
      () => `${path} is ${status} in epoch ${epoch} with lease ${JSON.stringify(lease)}`,
    );
    check.call(
      this.#violations,
      (status === 'scheduled') === (queue !== null),
      () => `${path} is ${status} with the place ${queue}`,
    );
    check.call(
      this.#violations,
      status !== 'running' || due_at !== null,
      () => `${path} runs without an end`,
    );
  }

  #checkSteps(path: string, was: Job, job: Job): void {
    const isReopened = FINAL.includes(was.status) && !FINAL.includes(job.status);
    const isRetry = this.#isMessage && was.status !== 'completed' && job.status === 'scheduled';
    this.#violations.check(
      was.status === job.status || STEPS[was.status].includes(job.status) || (isReopened && isRetry),
      () => `${path} went from ${was.status} to ${job.status}`,
    );
    // A worker that asks again for its job gets it again, in a new epoch.
    const isAgain = was.lease?.worker === job.lease?.worker && this.#violations.request?.action === 'lease';
    const isGranted = job.status === 'running' && (was.status === 'scheduled' || isAgain);
    this.#violations.check(
      job.epoch === was.epoch + (isGranted ? 1 : 0),
      () => `${path} went from epoch ${was.epoch} to ${job.epoch}, ${was.status} to ${job.status}`,
    );
    const isPreemption = ['preempted', 'drained'].includes(String(job.attempts.at(-1)?.cause));
    this.#violations.check(
      job.failures <= was.failures || !isPreemption,
      () => `${path} was charged for a preemption`,
    );
    this.#violations.check(
      job.failures - was.failures <= 1 && (job.failures >= was.failures || this.#isMessage),
      () => `${path} had ${was.failures} failures and has ${job.failures}`,
    );
  }

  /** An attempt is recorded when its lease ends, once, and at most one attempt completes the job. */
  #checkAttempts(path: string, was: Job, job: Job): void {
    const hasEnded = was.lease !== null && job.lease?.epoch !== was.lease.epoch;
    const added = job.attempts.length - was.attempts.length;
    this.#violations.check(
      added === (hasEnded ? 1 : 0),
      () => `${path} has ${added} attempts more, and its lease ${hasEnded ? 'ended' : 'goes on'}`,
    );
    const cost_usd = added > 0 ? (job.attempts.at(-1)?.cost_usd ?? 0) : 0;
    this.#violations.check(
      Math.abs(job.spent_usd - was.spent_usd - cost_usd) < 1e-9,
      () => `${path} had spent $${was.spent_usd} and has $${job.spent_usd}, with an attempt of $${cost_usd}`,
    );
    const epochs = job.attempts.map(({epoch}) => epoch);
    this.#violations.check(
      new Set(epochs).size === epochs.length,
      () => `${path} has the attempts ${epochs.join(', ')}`,
    );
    const completed = job.attempts.filter(({outcome}) => outcome === 'completed');
    const isRight = completed[0] === undefined || job.result === resultOf(job.job, completed[0].epoch);
    this.#violations.check(
      (job.status === 'completed') === (completed.length === 1) && isRight,
      () => `${path} is ${job.status} with the result ${job.result} of ${completed.length} attempts`,
    );
  }

  /** The request of a worker changes only the job that this worker holds, or that it is granted. */
  #checkActor(path: string, {lease, status}: Job, job: Job): void {
    const {request} = this.#violations;
    if (!request || request.action === 'lease' || status === 'scheduled') return;
    this.#violations.check(
      lease?.worker === request.worker && lease.incarnation === request.incarnation,
      () => `${path}, leased to ${JSON.stringify(lease)}, is ${job.status} by ${JSON.stringify(request)}`,
    );
  }

  /** The time of a worker with a job is billed to the payer of jobs. */
  onWorker(name: string, {work, incarnation, costs}: Document, after: Document): void {
    if (parseJobWork(work as string | null) === undefined || after.incarnation !== incarnation) return;
    const [was, is] = [costs, after.costs].map(each => totalOf(without(each as Costs, JOBS)));
    this.#violations.check(
      Number(is) <= Number(was) + 1e-9,
      () => `${name} has ${work}, and bills others than jobs: ${JSON.stringify([costs, after.costs])}`,
    );
  }

  /** True if a person deletes the document, or a message of a person. */
  get mayBeDeleted(): boolean {
    return this.#violations.actor === undefined || this.#isMessage;
  }

  /** After a commit, the job and the worker of each lease agree. */
  onCommitted(changed: readonly string[]): void {
    const {config, store} = this.#context;
    for (const path of changed) {
      const document = store.peek(path);
      if (path.startsWith(`${config.jobs_collection}/`) && document?.lease) {
        const lease = document.lease as Lease;
        const worker = store.peek(paths.worker(lease.worker));
        if (document.pool !== config.pool.pool) this.#context.see('the second pool has: a job');
        this.#violations.check(
          document.pool === worker?.pool,
          () => `${path} of the pool ${document.pool} is leased to ${lease.worker}`,
        );
        this.#violations.check(
          worker?.work === jobWork(String(document.job)) &&
            worker.epoch === lease.epoch &&
            worker.incarnation === lease.incarnation,
          () => `${path} is leased to ${JSON.stringify(lease)}, and that worker has ${worker?.work}`,
        );
      }
      if (/^workers\/[^/]+$/.test(path)) this.#checkLeftBehind(path);
      if (path.startsWith(`${config.jobs_collection}/`) && document)
        this.#checkMachine(path, document, changed);
      const id = /^workers\/[^/]+$/.test(path) ? parseJobWork((document?.work as string) ?? null) : undefined;
      const job = id === undefined ? undefined : store.peek(paths.job(config.jobs_collection, id));
      const lease = job?.lease as Lease | null | undefined;
      // A person may have deleted the job.
      this.#violations.check(
        job === undefined ||
          (path === paths.worker(String(lease?.worker)) && lease?.epoch === document?.epoch),
        () => `${path} works on ${document?.work}, which is leased to ${JSON.stringify(lease)}`,
      );
    }
  }

  /** A worker that loses its job frees it in the same commit. */
  #checkLeftBehind(path: string): void {
    const {config, store} = this.#context;
    const {work, incarnation} = store.peek(path) ?? {};
    for (const {path: job, id, data} of store.collection(config.jobs_collection)) {
      const lease = data.lease as Lease | null | undefined;
      const isTheirs = lease && paths.worker(lease.worker) === path && lease.incarnation === incarnation;
      this.#violations.check(
        !isTheirs || work === jobWork(id),
        () => `${job} is leased to ${JSON.stringify(lease)}, and that worker has ${work}`,
      );
    }
  }

  /** A preemption is no fault of a machine. */
  #checkMachine(path: string, {attempts = [], lease}: Document, changed: readonly string[]): void {
    const last = (attempts as Job['attempts']).at(-1);
    const record = last && paths.attempt(last.worker, last.incarnation);
    if (lease || last?.cause !== 'machine' || !record || !changed.includes(record)) return;
    this.#violations.check(
      this.#context.store.peek(record)?.cause_kind !== 'taken',
      () => `${path} was charged for ${last.worker}, which was taken: ${last.error}`,
    );
  }

  /** Every job has ended, and in the way of its course. A deleted job is not made again. */
  atTheEnd(): void {
    const {config, store, submitted} = this.#context;
    for (const [id, {course, isDeleted, max_retries}] of submitted) {
      const job = store.peek(paths.job(config.jobs_collection, id)) as unknown as Job | undefined;
      if (isDeleted) {
        this.#violations.check(job === undefined, () => `${id} was deleted, and is ${job?.status}`);
        continue;
      }
      this.#violations.check(
        job !== undefined && FINAL.includes(job.status),
        () => `${id} (${course}) is ${job?.status} at the end`,
      );
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
      this.#violations.check(isRight, () => `${id} (${course}) is ${job.status}: ${job.cause} ${job.error}`);
    }
  }
}

function without(costs: Costs, payer: string): Costs {
  return Object.fromEntries(Object.entries(costs).filter(([each]) => each !== payer));
}

export function resultOf(job: string, epoch: number): string {
  return `${job} of epoch ${epoch}`;
}
