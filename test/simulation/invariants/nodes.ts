/** Checks that a slot has one incarnation at a time, that each has a request id and a record, and that no foreign node is deleted. */
import {isLabelled} from '../../../shared/domain/deployment.ts';
import {parseWorkerName, paths} from '../../../shared/domain/names.ts';
import type {Limiter} from '../../../shared/domain/records/limiter.ts';
import {isAlive, type Worker} from '../../../shared/domain/records/worker.ts';
import type {Document, Tpu, TpuRequest} from '../../../shared/ports/ports.ts';
import type {SimStore} from '../../world/store.ts';
import {MAX_HANG_MINUTES, MAX_SKEW_MS} from '../conditions/faults.ts';
import {Check} from './violations.ts';

export function workersOf(store: SimStore): Worker[] {
  return store.collection('workers').map(({data}) => data as unknown as Worker);
}

export function isUp(worker: Worker): boolean {
  return isAlive(worker) || worker.phase === 'creating';
}

/** True if a new incarnation of the slot starts. */
export function isNewIncarnation(before: Document, after: Document): boolean {
  return before.phase !== 'creating' && after.phase === 'creating';
}

/** The time in which an operator can restore the database before its nodes are deleted. */
const ORPHANS_WAIT_MS = 3_600_000;

export class Nodes extends Check {
  /** Paths of the records of incarnations that have ended. */
  readonly #ended = new Set<string>();
  /** The incarnation of each request id in the queue. */
  readonly #requests = new Map<string, string>();
  /** Pools that a person has paused, and since when. */
  readonly #paused_at = new Map<string, number>();
  #wiped_at = Number.NEGATIVE_INFINITY;

  onWorker(name: string, before: Document, after: Document): void {
    const [old, incarnation] = [Number(before.incarnation), Number(after.incarnation)];
    if (incarnation < old) this.breach(`${name}: the incarnation fell from ${old} to ${incarnation}`);
    const isOver = ({phase}: Document) => phase === 'deleting' || phase === 'gone';
    // A refused node never existed, and its incarnation goes on with the next request.
    if (!isOver(before) && isOver(after) && !after.refused) this.#ended.add(paths.attempt(name, old));
    const isNew = isNewIncarnation(before, after);
    if (isNew) this.#checkNoOldNode(name, incarnation);
    if (before.phase === 'deleting' && after.phase === 'gone') this.#checkGone(name, incarnation);
    if (isNew && before.phase !== 'gone') this.breach(`${name} was created while it was ${before.phase}`);
    if (isNew && before.refused && incarnation !== old)
      this.breach(`${name} was refused as incarnation ${old}, and requested again as ${incarnation}`);
    if (isNew && !before.refused && incarnation === old)
      this.breach(`${name} was created again as incarnation ${incarnation}`);
    // After the database was lost, a plan does not count its nodes before they are adopted.
    const {max_workers} = this.context.config.ceilings;
    const living = workersOf(this.context.store).filter(({phase}) => phase !== 'gone').length;
    if (isNew && living === max_workers) this.#seeFull();
    if (isNew && after.pool !== this.context.config.pool.pool)
      this.context.see('the second pool has: a worker');
    if (isNew && living > max_workers && this.#wiped_at <= 0)
      this.breach(`${name} was created as one of ${living} workers, and at most ${max_workers} are allowed`);
    if (isNew) this.#checkPaused(`${name} is created`, String(after.pool));
    const node = this.context.tpus.nodes.get(name);
    const isThere = node?.state === 'READY' && Number(node.metadata['gleaner-incarnation']) === incarnation;
    const isVanished = after.last_death !== before.last_death && /vanished/.test(String(after.last_death));
    if (isVanished && isThere) this.breach(`${name} is recorded as vanished, and its node is READY`);
  }

  onPool(name: string, after: Document): void {
    if ((after.limiter as Limiter).cause !== 'person') this.#paused_at.delete(name);
    else if (!this.#paused_at.has(name)) this.#paused_at.set(name, this.context.clockwork.now);
  }

  /** A call that began after a person paused the pool requests no node for it. */
  #checkPaused(what: string, pool: string): void {
    const {actor} = this.violations;
    const paused_at = this.#paused_at.get(pool);
    if (paused_at !== undefined && actor && 'at' in actor && actor.at > paused_at)
      this.breach(`${what}, and ${pool} was paused ${actor.at - paused_at} ms before the call`);
  }

  #seeFull(): void {
    const pools = new Set(
      workersOf(this.context.store).flatMap(({phase, pool}) => (phase === 'gone' ? [] : pool)),
    );
    this.context.see('ceilings: the maximum of workers');
    if (pools.size > 1) this.context.see('ceilings: the maximum of workers over two pools');
  }

  /** A worker is gone only when its node is deleted. A create that hangs may make the node later. */
  #checkGone(name: string, incarnation: number): void {
    const {storm, tpus} = this.context;
    const node = tpus.nodes.get(name);
    const isOurs = node?.labels['managed-by'] === 'gleaner' && node.state === 'READY';
    const isOwn = isOurs && Number(node.metadata['gleaner-incarnation']) <= incarnation;
    if (isOwn && storm.hang === 0)
      this.breach(`${name}#${incarnation} is gone, and its node is ${node?.state}`);
  }

  /** A slot gets a new node only when its earlier node is deleted. */
  #checkNoOldNode(name: string, incarnation: number): void {
    const {storm, tpus} = this.context;
    const node = tpus.nodes.get(name);
    const isOurs = node?.labels['managed-by'] === 'gleaner';
    if (isOurs && storm.hang === 0 && this.#wiped_at <= 0)
      this.breach(`${name}#${incarnation} is created, and its node is ${node?.state}`);
  }

  /**
   * After the Store is lost, a zone with many orphans keeps them for an hour. An operator or a budget may delete them earlier.
   */
  onWorkerCreated(name: string, {zone, phase, incarnation}: Document): void {
    if (phase !== 'deleting') return;
    this.context.see('a node without a document is deleted');
    const {clockwork, store, tpus} = this.context;
    const last = Number(tpus.nodes.get(name)?.metadata['gleaner-incarnation'] ?? 0);
    if (!(Number(incarnation) >= last))
      this.breach(`${name}#${last} is deleted as incarnation ${incarnation}`);
    const lost_ms = clockwork.now - this.#wiped_at;
    const isUnknown = (node: Tpu) => node.name === name || !store.peek(paths.worker(node.name));
    const isOld = ({created_at}: Tpu) => Date.parse(created_at) < this.#wiped_at - MAX_SKEW_MS;
    const slot = parseWorkerName(name);
    const isOfSlot = (node: Tpu) => {
      const its = parseWorkerName(node.name);
      return node.zone === zone && its?.zone === zone && its.pool === slot?.pool;
    };
    const orphans = [...tpus.nodes.values()].filter(
      node => isOfSlot(node) && node.labels['managed-by'] === 'gleaner' && isUnknown(node) && isOld(node),
    );
    // A list that leaves nodes out may show a single orphan, which is deleted at once. An earlier list may have shown them all.
    const {stale, omission} = this.context.storm;
    const owner = slot?.pool === this.context.config.pool.pool ? null : slot?.pool;
    const mark = store.peek(paths.zone(String(zone), owner))?.orphans ?? null;
    const wereSeen = mark !== null || (stale === 0 && omission === 0);
    const {config, hasMonthBudget} = this.context;
    const isBudgeted = hasMonthBudget || config.pool.budget_usd !== null;
    const areMany = orphans.length > 1 && wereSeen && !isBudgeted && lost_ms < ORPHANS_WAIT_MS - MAX_SKEW_MS;
    if (areMany && !this.violations.isForOperator)
      this.breach(
        `${name} is deleted, and ${orphans.length} nodes of ${zone} had a document ${lost_ms} ms ago`,
      );
  }

  /** A rebuild of every run waits until all orphans are deleted, because their workers may store more shards. */
  onRebuild(): void {
    const {storm, store, tpus} = this.context;
    if (storm.omission > 0 || storm.stale > 0) return;
    const left = [...tpus.nodes.values()].filter(({name, labels, created_at}) => {
      const isOurs =
        isLabelled(labels, this.context.config.deployment) && labels['gleaner-incarnation'] !== undefined;
      const worker = store.peek(paths.worker(name));
      const isKnown = worker && worker.phase !== 'deleting';
      return isOurs && !isKnown && Date.parse(created_at) < this.#wiped_at - MAX_SKEW_MS;
    });
    if (left.length !== 0)
      this.breach(`runs are rebuilt, and orphans are left: ${left.map(({name}) => name)}`);
  }

  /** A create of a node or of a queued resource was requested. */
  onNodeRequest({name, provider, labels, metadata, queue}: TpuRequest): void {
    const {clockwork, config} = this.context;
    const isOwn = parseWorkerName(name)?.pool === config.pool.pool;
    const due = isOwn ? config.pool.provider : 'tpu-api';
    if (provider !== due) this.breach(`${name} is requested from ${provider}, and its pool has ${due}`);
    const incarnation = metadata['gleaner-incarnation'];
    const areRight = labels['managed-by'] === 'gleaner' && labels['gleaner-incarnation'] === incarnation;
    if (!areRight) this.breach(`${name} is requested with labels ${JSON.stringify(labels)}`);
    this.#checkPaused(`${name} is requested`, String(labels['gleaner-pool']));
    if (!queue) return;
    const waits_s = (Date.parse(queue.valid_until_at) - clockwork.now) / 1000;
    const most_s = config.placement.queue_s + MAX_SKEW_MS / 1000;
    if (waits_s > most_s) this.breach(`${name} may wait in the queue for ${waits_s} s`);
    // A call from before the Store was lost may arrive late.
    if (clockwork.now - this.#wiped_at < MAX_HANG_MINUTES * 60_000) return;
    const requested = `${name}#${incarnation} of Store ${this.#wiped_at}`;
    const other = this.#requests.get(queue.request_id) ?? requested;
    this.#requests.set(queue.request_id, other);
    if (other !== requested) this.breach(`${requested} is requested with the request id of ${other}`);
  }

  onNodeDeleted(node: Tpu | undefined): void {
    const isOurs = node === undefined || isLabelled(node.labels, this.context.config.deployment);
    if (!isOurs) this.breach(`${node?.name} is deleted, and Gleaner does not own it`);
  }

  override onWipe(): void {
    this.#wiped_at = this.context.clockwork.now;
    this.#ended.clear();
    this.#paused_at.clear();
  }

  override atTheEnd(): void {
    const {store} = this.context;
    for (const {id, data} of store.collection('workers'))
      if (data.phase !== 'gone') this.breach(`${id} is ${data.phase} at the end`);
    for (const path of this.#ended) if (store.peek(path) === undefined) this.breach(`${path} has no record`);
  }
}
