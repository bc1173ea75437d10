/** Leases: a stream has a single holder, loses it for a reason, and its worker is informed. */
import {paths} from '../../../shared/domain/names.ts';

import {isAlive, type Worker} from '../../../shared/domain/worker/worker.ts';
import type {Document, Stored} from '../../../shared/ports.ts';
import type {Context} from '../context.ts';
import {MOST_LATE_MINUTES, MOST_SKEW_MS} from '../faults.ts';
import {poolOf} from './money.ts';
import type {Said, Violations} from './violations.ts';

export type Lease = {worker: string; incarnation: number; epoch: number; granted_by?: string};

export class Leases {
  readonly #context: Context;
  readonly #violations: Violations;
  readonly #askedAt = new WeakMap<Said, number>();

  constructor(context: Context, violations: Violations) {
    this.#context = context;
    this.#violations = violations;
  }

  onAsked(said: Said): void {
    this.#askedAt.set(said, this.#context.clockwork.now);
  }

  onStream(path: string, before: Document | undefined, after: Document): void {
    const [held, lease] = [before?.lease as Lease | null | undefined, after.lease as Lease | null];
    if (held && held.epoch !== lease?.epoch) this.#checkActor(path, held, after);
    if (held && after.status === 'pending') this.#checkTaken(path, held);
    const isLeased = after.status === 'in_progress';
    this.#violations.check(
      isLeased === (lease !== null),
      () => `${path} is ${after.status} with lease ${JSON.stringify(lease)}`,
    );
    if (!lease) return;
    this.#violations.check(
      lease.epoch === after.epoch,
      () => `${path} has a lease of epoch ${lease.epoch} in ${after.epoch}`,
    );
    this.#checkHolder(path, lease, held ?? null);
  }

  /** After a commit, both documents of each lease agree. */
  onCommitted(changed: readonly string[]): void {
    const {store} = this.#context;
    for (const path of changed) {
      const document = store.peek(path);
      if (/^runs\/[^/]+\/streams\/[^/]+$/.test(path) && document?.lease) {
        const lease = document.lease as Lease;
        const worker = store.peek(paths.worker(lease.worker));
        const isSame = `runs/${String(worker?.work).replace('/', '/streams/')}` === path;
        this.#violations.check(
          isSame && worker?.epoch === lease.epoch && worker.incarnation === lease.incarnation,
          () => `${path} is leased to ${JSON.stringify(lease)}, and that worker has ${worker?.work}`,
        );
      }
      if (/^workers\/[^/]+$/.test(path) && document?.work) {
        const stream = store.peek(`runs/${String(document.work).replace('/', '/streams/')}`);
        const lease = stream?.lease as Lease | null | undefined;
        const isHeld = path === paths.worker(String(lease?.worker)) && lease?.epoch === document.epoch;
        // A worker that stored the last shard keeps its work until it releases the stream. A lost Store has no streams.
        this.#violations.check(
          isHeld || stream === undefined || stream.status === 'completed',
          () => `${path} works on ${document.work}, which is leased to ${JSON.stringify(lease)}`,
        );
      }
    }
  }

  /** The request of a worker changes its own present lease alone. */
  #checkActor(path: string, held: Lease, after: Document): void {
    const {said} = this.#violations;
    // The first reader of a final shard, or of a shard of other content, ends the stream.
    if (!said?.lease || said.action === 'lease' || after.status === 'completed') return;
    const isOwn =
      said.worker === held.worker &&
      said.incarnation === held.incarnation &&
      said.lease.epoch === held.epoch &&
      path === paths.stream(said.lease.run, said.lease.stream);
    this.#violations.check(
      isOwn || /another|other content/.test(String(after.last_error)),
      () =>
        `${path}, leased to ${held.worker}#${held.incarnation} in epoch ${held.epoch}, changed by a request of ${JSON.stringify(said)}`,
    );
  }

  /** A living worker that claimed its lease lately loses it only by its own request or by a message of an operator. */
  #checkTaken(path: string, held: Lease): void {
    const {clockwork, config, store} = this.#context;
    if (this.#violations.said || this.#violations.isOrdered) return;
    // The function that stopped the run may have died before it notified the workers: the tick notifies them.
    if (store.peek(path.split('/', 2).join('/'))?.status === 'cancelled') return;
    const worker = store.peek(paths.worker(held.worker)) as Worker | undefined;
    const isTheirs = worker?.incarnation === held.incarnation && worker.epoch === held.epoch;
    if (!worker || !isTheirs || !isAlive(worker) || path !== `runs/${worker.work?.replace('/', '/streams/')}`)
      return;
    const silent_ms = clockwork.now - Date.parse(worker.claimed_at ?? worker.phase_since_at);
    this.#violations.check(
      silent_ms > config.lease_s * 1000 - 2 * MOST_SKEW_MS,
      () => `${path} was taken from ${held.worker}, which claimed it ${silent_ms} ms before`,
    );
  }

  /** A lease goes to the current incarnation of a worker without another lease, and only after the last holder lost it. */
  #checkHolder(path: string, lease: Lease, held: Lease | null): void {
    const isGranted = held?.epoch !== lease.epoch;
    const moved = held && (held.worker !== lease.worker || held.incarnation !== lease.incarnation);
    this.#violations.check(
      !moved || isGranted,
      () => `${path} went from ${held?.worker} to ${lease.worker} in one epoch`,
    );
    if (!isGranted) return;
    const {said} = this.#violations;
    const run = this.#context.store.peek(path.split('/', 2).join('/'));
    this.#violations.check(
      said?.action !== 'lease' || run?.status === 'active',
      () => `${path} was granted to ${lease.worker}, and its run is ${run?.status}`,
    );
    if (said?.action === 'lease' && !held) this.#checkPriority(path, Number(run?.priority), said);
    if (said?.action === 'lease' && run?.stopped_at === null) this.#checkGeneration(path);
    this.#violations.check(
      !moved,
      () => `${path} went from ${held?.worker} to ${lease.worker} without being free in between`,
    );
    for (const run of this.#context.store.collection('runs'))
      for (const {path: other, data} of this.#context.store.collection(`${run.path}/streams`)) {
        const theirs = data.lease as Lease | null;
        const isTwo =
          other !== path && theirs?.worker === lease.worker && theirs.incarnation === lease.incarnation;
        this.#violations.check(!isTwo, () => `${lease.worker} has both ${path} and ${other}`);
      }
  }

  /** A worker gets the content that is in the bucket: it can read no other. */
  #checkGeneration(path: string): void {
    const {clockwork, objects, storm, store} = this.#context;
    const {object, generation} = store.peek(path) ?? {};
    const info = objects.info(String(object));
    const since = clockwork.now - (storm.hang > 0 ? MOST_LATE_MINUTES : 3) * 60_000;
    this.#violations.check(
      !info || info.generation === generation || Date.parse(info.created_at) > since,
      () => `${path} is leased with generation ${generation}, and ${object} has ${info?.generation}`,
    );
  }

  /** A stream of a run with a higher priority goes first if it was pending for a minute before the request. */
  #checkPriority(path: string, priority: number, said: Said): void {
    const {store} = this.#context;
    const since = (this.#askedAt.get(said) ?? 0) - 60_000 - 2 * MOST_SKEW_MS;
    const isOld = ({data}: Stored) => Date.parse(String(data.updated_at)) < since;
    const higher = store
      .collection('runs')
      .filter(run => run.data.status === 'active' && Number(run.data.priority) > priority && isOld(run))
      // Without a tick, worker-api does not know that a stream of a run is pending again.
      .filter(run => Number(run.data.streams_pending) > 0);
    const first = higher
      .flatMap(run => store.collection(`${run.path}/streams`))
      .find(stream => stream.data.status === 'pending' && isOld(stream));
    this.#violations.check(
      !first,
      () => `${path} was granted before ${first?.path}, whose run has a higher priority`,
    );
  }

  /** The request of a worker changes no document of another worker. */
  onWorker(name: string, before: Document | undefined, after: Document): void {
    const {said} = this.#violations;
    // The first reader of a shard of other content revokes the lease of the stream.
    const same = said?.lease && `${said.lease.run}/${said.lease.stream}`;
    const losesSame = same && before?.work === same && after.work === null;
    this.#violations.check(
      !said || losesSame || (said.worker === name && said.incarnation === after.incarnation),
      () => `${name}#${after.incarnation} changed by a request of ${said?.worker}#${said?.incarnation}`,
    );
  }

  /** Without a budget, an unwanted worker finishes its shard. */
  onEndOfLife(name: string, {cause_kind, last_phase, work}: Document): void {
    const pool = poolOf(this.#context);
    const isFree = pool.budget_usd === null && pool.version === 0 && !this.#context.hasMonthBudget;
    const isCut = cause_kind === 'not-needed' && last_phase === 'working' && work !== null;
    const isAnyRunPoor = this.#context.store.collection('runs').some(({data}) => Number(data.version) > 0);
    this.#violations.check(!isCut || !isFree || isAnyRunPoor, () => `${name} was deleted at work on ${work}`);
  }

  /** No worker continues under a lease that is over: the answer to a worker agrees with the document of its stream. */
  onAnswer({action, lease, worker, incarnation}: Said, answer: Document): void {
    if (action !== 'heartbeat' || !lease || (answer.action !== 'continue' && answer.action !== 'drain'))
      return;
    const {store} = this.#context;
    const stream = store.peek(paths.stream(lease.run, lease.stream));
    const life = store.peek(paths.worker(worker))?.incarnation;
    const isKnown = life !== undefined && Number(life) >= incarnation;
    this.#violations.check(
      isKnown || answer.action === 'drain',
      () => `${worker}#${incarnation} has no document, and continues`,
    );
    // A Store that was lost no longer tells the state of the stream.
    if (!isKnown || !stream || !store.peek(paths.run(lease.run))) return;
    // The worker that stored the last shard is answered `continue` until it has released the stream.
    if (stream.status === 'completed') return;
    const held = stream.lease as Lease | null;
    const isHeld = held?.epoch === lease.epoch && held.worker === worker && held.incarnation === incarnation;
    this.#violations.check(
      isHeld,
      () =>
        `${worker}#${incarnation} was answered ${answer.action} in epoch ${lease.epoch}, and the lease is ${JSON.stringify(held)}`,
    );
  }
}
