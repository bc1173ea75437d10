/** Checks leases: a stream has one holder, a lease ends for a reason, and its worker is notified. */
import {budgetProblem} from '../../../shared/domain/billing/budget.ts';
import {jobWork, parseJobWork, parseWorkerName, paths} from '../../../shared/domain/names.ts';
import type {Run} from '../../../shared/domain/records/run.ts';
import {isAlive, type Worker} from '../../../shared/domain/records/worker.ts';
import type {Document, Stored} from '../../../shared/ports/ports.ts';
import {MAX_HANG_MINUTES, MAX_SKEW_MS} from '../conditions/faults.ts';
import {poolOf} from './money.ts';
import {workersOf} from './nodes.ts';
import {Check, streamLeaseOf, type WorkerRequest} from './violations.ts';

export type Lease = {worker: string; incarnation: number; epoch: number; granted_by?: string};

/** The path of the stream that a worker works on. */
export function streamPathOf(work: unknown): string {
  return `runs/${String(work).replace('/', '/streams/')}`;
}

export class Leases extends Check {
  readonly #receivedAt = new WeakMap<WorkerRequest, number>();

  override onRequest(request: WorkerRequest): void {
    this.#receivedAt.set(request, this.context.clockwork.now);
  }

  onStream(path: string, before: Document | undefined, after: Document): void {
    const [held, lease] = [before?.lease as Lease | null | undefined, after.lease as Lease | null];
    if (held && held.epoch !== lease?.epoch) this.#checkActor(path, held, after);
    if (held && after.status === 'pending') this.#checkRevoked(path, held);
    const isLeased = after.status === 'in_progress';
    if (isLeased !== (lease !== null))
      this.breach(`${path} is ${after.status} with lease ${JSON.stringify(lease)}`);
    if (!lease) return;
    if (lease.epoch !== after.epoch)
      this.breach(`${path} has a lease of epoch ${lease.epoch} in ${after.epoch}`);
    this.#checkHolder(path, lease, held ?? null);
  }

  /** After a commit, the stream or job of each lease and its worker agree. */
  override onCommitted(changed: readonly string[]): void {
    const {config, store} = this.context;
    for (const path of changed) {
      const document = store.peek(path);
      const {collection, run, id} =
        /^(?:runs\/(?<run>[^/]+)\/)?(?<collection>[^/]+)\/(?<id>[^/]+)$/.exec(path)?.groups ?? {};
      const isJob = collection === config.jobs_collection;
      if (document?.lease && (isJob || collection === 'streams')) {
        const lease = document.lease as Lease;
        const worker = store.peek(paths.worker(lease.worker));
        const isSame = worker?.work === (isJob ? jobWork(String(id)) : `${run}/${id}`);
        if (this.context.everAlone.has(path)) continue;
        if (!isSame || worker.epoch !== lease.epoch || worker.incarnation !== lease.incarnation)
          this.breach(`${path} is leased to ${JSON.stringify(lease)}, and that worker has ${worker?.work}`);
      }
      if (collection === 'streams' && document?.lease === null && document.status !== 'completed')
        this.#checkLetGo(path, `${run}/${id}`);
      if (collection === 'workers' && document?.work) {
        const job = parseJobWork(String(document.work));
        const held = store.peek(job ? paths.job(config.jobs_collection, job) : streamPathOf(document.work));
        const lease = held?.lease as Lease | null | undefined;
        const members = (lease as {members?: Lease[]} | null | undefined)?.members ?? [];
        const isTheirs = [lease, ...members].some(each => path === paths.worker(String(each?.worker)));
        const isHeld = isTheirs && lease?.epoch === document.epoch;
        // A worker that stored the last shard keeps its stream until it releases it. A lost Store has no streams, and people delete jobs.
        if (!isHeld && held !== undefined && (job || held.status !== 'completed'))
          this.breach(`${path} works on ${document.work}, which is leased to ${JSON.stringify(lease)}`);
      }
    }
  }

  /** A stream that loses its lease leaves its worker in the same commit. */
  #checkLetGo(path: string, stream: string): void {
    const holder = workersOf(this.context.store).find(({work}) => work === stream);
    if (holder && !this.context.everAlone.has(path))
      this.breach(`${path} has no lease, and ${holder.name} works on it in epoch ${holder.epoch}`);
  }

  /** The request of a worker changes only the lease that this worker holds. */
  #checkActor(path: string, held: Lease, after: Document): void {
    const {request} = this.violations;
    // Any request that finds the final shard, or a shard of other content, ends the stream.
    const claim = streamLeaseOf(request);
    if (!request || !claim || request.action === 'lease' || after.status === 'completed') return;
    const isOwn =
      request.worker === held.worker &&
      request.incarnation === held.incarnation &&
      claim.epoch === held.epoch &&
      path === paths.stream(claim.run, claim.stream);
    if (!isOwn && !/another|other content/.test(String(after.last_error)))
      this.breach(
        `${path}, leased to ${held.worker}#${held.incarnation} in epoch ${held.epoch}, changed on the request ${JSON.stringify(request)}`,
      );
  }

  /** A living worker with a recent claim loses its lease only by its own request or by an operator's message. */
  #checkRevoked(path: string, held: Lease): void {
    const {clockwork, config, store} = this.context;
    if (this.violations.request || this.violations.isForOperator) return;
    // The tick notifies the workers of a run that a message or a failure of its model has ended.
    const run = store.peek(path.split('/', 2).join('/'));
    if (run?.status === 'stopped' || run?.certain_failure) return;
    const worker = store.peek(paths.worker(held.worker)) as Worker | undefined;
    const isHolder = worker?.incarnation === held.incarnation && worker.epoch === held.epoch;
    if (!worker || !isHolder || !isAlive(worker) || path !== streamPathOf(worker.work)) return;
    const silent_ms = clockwork.now - Date.parse(worker.claimed_at ?? worker.phase_since_at);
    if (!(silent_ms > config.lease_s * 1000 - 2 * MAX_SKEW_MS))
      this.breach(`${path} was revoked from ${held.worker}, which had claimed it ${silent_ms} ms before`);
  }

  /** A lease goes to a current incarnation without another lease, and only after the earlier lease has ended. */
  #checkHolder(path: string, lease: Lease, held: Lease | null): void {
    const isGranted = held?.epoch !== lease.epoch;
    const moved = held && (held.worker !== lease.worker || held.incarnation !== lease.incarnation);
    if (moved && !isGranted)
      this.breach(`${path} moved from ${held?.worker} to ${lease.worker} in one epoch`);
    if (!isGranted) return;
    const {request} = this.violations;
    const run = this.context.store.peek(path.split('/', 2).join('/'));
    if (request?.action === 'lease' && run?.status !== 'active')
      this.breach(`${path} was leased to ${lease.worker}, and its run is ${run?.status}`);
    if (request?.action === 'lease') this.#checkPool(path, lease, run?.pool);
    if (request?.action === 'lease' && !held) this.#checkPriority(path, Number(run?.priority), request);
    if (request?.action === 'lease' && run?.stopped_at === null) this.#checkGeneration(path);
    if (moved)
      this.breach(`${path} moved from ${held?.worker} to ${lease.worker}, and was not pending between`);
    for (const run of this.context.store.collection('runs'))
      for (const {path: other, data} of this.context.store.collection(`${run.path}/streams`)) {
        const otherLease = data.lease as Lease | null;
        const isTwo =
          other !== path &&
          !this.context.everAlone.has(other) &&
          otherLease?.worker === lease.worker &&
          otherLease.incarnation === lease.incarnation;
        if (isTwo) this.breach(`${lease.worker} holds both ${path} and ${other}`);
      }
  }

  #checkPool(path: string, {worker}: Lease, pool: unknown): void {
    const own = this.context.store.peek(paths.worker(worker))?.pool;
    if (own !== this.context.config.pool.pool) this.context.see('the second pool has: a stream');
    if (own !== pool) this.breach(`${path} of the pool ${pool} was leased to ${worker} of ${own}`);
  }

  /** A lease names the generation in the bucket, because a worker can read no other. */
  #checkGeneration(path: string): void {
    const {clockwork, objects, storm, store} = this.context;
    const {object, generation} = store.peek(path) ?? {};
    const info = objects.info(String(object));
    const since = clockwork.now - (storm.hang > 0 ? MAX_HANG_MINUTES : 3) * 60_000;
    if (info && info.generation !== generation && !(Date.parse(info.created_at) > since))
      this.breach(
        `${path} is leased with generation ${generation}, and ${object} has generation ${info?.generation}`,
      );
  }

  /** A stream of a run with a higher priority is leased first if it was pending for a minute before the request. */
  #checkPriority(path: string, priority: number, request: WorkerRequest): void {
    const {store} = this.context;
    const since = (this.#receivedAt.get(request) ?? 0) - 60_000 - 2 * MAX_SKEW_MS;
    const isOld = ({data}: Stored) => Date.parse(String(data.updated_at)) < since;
    const {usd_per_hour, pool} = store.peek(paths.worker(request.worker)) as Worker;
    const higher = store
      .collection('runs')
      .filter(run => run.data.status === 'active' && Number(run.data.priority) > priority && isOld(run))
      .filter(run => run.data.pool === pool)
      // Without a tick, worker-api does not know that a stream of a run is pending again.
      .filter(run => Number(run.data.streams_pending) > 0)
      // No tick has paused the run yet, and its budget does not pay for another worker.
      .filter(run => !budgetProblem(run.data as Run, usd_per_hour))
      // A stream of a fixed run waits for its own slot.
      .filter(run => run.data.affinity === 'any');
    const first = higher
      .flatMap(run => store.collection(`${run.path}/streams`))
      .find(
        stream =>
          stream.data.status === 'pending' && isOld(stream) && !this.context.everAlone.has(stream.path),
      );
    if (first) this.breach(`${path} was leased before ${first?.path}, whose run has a higher priority`);
  }

  /** The request of a worker changes no document of another worker. */
  onWorker(name: string, before: Document | undefined, after: Document): void {
    const {request} = this.violations;
    // Any request that finds a shard of other content revokes the lease of the stream.
    const claim = streamLeaseOf(request);
    const same = claim && `${claim.run}/${claim.stream}`;
    const losesSame = same && before?.work === same && after.work === null;
    // A job of several slices begins and ends on all of them with the request of one.
    const isMember =
      this.context.hasSlices &&
      parseWorkerName(request?.worker ?? '')?.zone === after.zone &&
      [before?.work, after.work].some(work => parseJobWork(work as string | null) !== undefined);
    if (
      request &&
      !losesSame &&
      !isMember &&
      (request.worker !== name || request.incarnation !== after.incarnation)
    )
      this.breach(
        `${name}#${after.incarnation} changed on a request of ${request?.worker}#${request?.incarnation}`,
      );
  }

  /** Where no budget is set, a worker at work is never deleted as not needed: it finishes its shard. */
  onIncarnationEnded(name: string, {cause_kind, last_phase, work}: Document): void {
    const pool = poolOf(this.context, name);
    const isNew = pool?.version === (pool?.pool === this.context.config.pool.pool ? 0 : 1);
    const isUnlimited = pool?.budget_usd === null && isNew && !this.context.hasMonthBudget;
    const job = parseJobWork(work as string | null);
    const {config, hasMonthBudget} = this.context;
    const hasBudget = hasMonthBudget || config.pool.budget_usd !== null || pool?.budget_usd != null;
    // A scale-down lets a job finish, however long it takes. An agent that starts again has ended its job.
    const isAtJob = job !== undefined && last_phase !== 'booting';
    if (cause_kind === 'not-needed' && isAtJob && !hasBudget)
      this.breach(`${name} was deleted as not needed, at work on ${work}`);
    const isInterrupted = cause_kind === 'not-needed' && last_phase === 'working' && work !== null;
    const isAnyRunConfigured = this.context.store
      .collection('runs')
      .some(({data}) => Number(data.version) > 0);
    if (isInterrupted && isUnlimited && !isAnyRunConfigured)
      this.breach(`${name} was deleted at work on ${work}`);
  }

  /** No worker continues under a lease that has ended: the answer to a worker agrees with the document of its stream. */
  onAnswer(request: WorkerRequest, answer: Document): void {
    const {action, worker, incarnation} = request;
    const lease = streamLeaseOf(request);
    if (action !== 'heartbeat' || !lease || (answer.action !== 'continue' && answer.action !== 'drain'))
      return;
    const {store} = this.context;
    const stream = store.peek(paths.stream(lease.run, lease.stream));
    const current = store.peek(paths.worker(worker))?.incarnation;
    const isKnown = current !== undefined && Number(current) >= incarnation;
    if (!isKnown && answer.action !== 'drain')
      this.breach(`${worker}#${incarnation} has no document, and is answered ${answer.action}`);
    // A Store that was lost no longer has the state of the stream.
    if (!isKnown || !stream || !store.peek(paths.run(lease.run))) return;
    // The worker that stored the last shard is answered `continue` until it releases the stream.
    if (stream.status === 'completed') return;
    const held = stream.lease as Lease | null;
    const isHeld = held?.epoch === lease.epoch && held.worker === worker && held.incarnation === incarnation;
    if (!isHeld)
      this.breach(
        `${worker}#${incarnation} is answered ${answer.action} in epoch ${lease.epoch}, and the lease is ${JSON.stringify(held)}`,
      );
  }
}
