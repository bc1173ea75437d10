/** What must hold at every moment, and what must have come about at the end. The first breach is kept, with its reason. */
import {accrue, costOfLiving, payerOf} from '../../shared/core/cost.ts';
import {manifestObject, paths} from '../../shared/core/names.ts';
import type {Zone} from '../../shared/core/placement.ts';
import type {Pool} from '../../shared/core/pool.ts';
import {LIST_PRICES} from '../../shared/core/prices.ts';
import type {Run} from '../../shared/core/run.ts';
import type {Stream} from '../../shared/core/stream.ts';
import {isAlive, type Worker} from '../../shared/core/worker.ts';
import type {Document, ObjectInfo, Stored, Tpu, TpuRequest} from '../../shared/ports.ts';
import {breachOfBlame} from './blame.ts';
import {STALE_MS, TAKEN} from './cloud.ts';
import {COUNTED_TOMORROW, type Topic} from './code.ts';
import type {Setting} from './setting.ts';
import {good, planShards, storedText} from './streams.ts';

type Lease = {worker: string; incarnation: number; epoch: number; granted_by?: string};

/** What a worker said to worker-api. */
export type Said = {
  action: 'lease' | 'heartbeat' | 'release';
  worker: string;
  incarnation: number;
  lease?: {run: string; stream: string; epoch: number} | null;
  outcome?: string;
  failure?: {kind: string; reason: string} | null;
};

/** On whose behalf a function makes a call: a message, the beat, or a worker who said something. */
export type Actor = {said: Said} | {topic: Topic | 'tick'; id: string} | undefined;

/** A tick that has begun: whom it has to dismiss because there is no more money for them. */
export type BegunTick = {at: number; poor: Set<string>};

/** Clocks of two instances differ by at most so much in a storm. */
const MOST_SKEW_MS = 25_000;
/** A call that was made in the storm may hang for so long in the calm. */
const AFTERMATH_MINUTES = 12;
/**
 * Minutes that a TPU may outlive the last work: that in which the work ended, one whose tick deletes it, and one whose tick sees it
 * gone; and then nothing ticks.
 */
const ORPHAN_MINUTES = 3;
const TICKER_MINUTES = 4;

const A_WEEK_MS = 7 * 86_400_000;

/** What clocks that differ may make of the time that a life is paid for. */
const MOST_MISCOUNTED_S = 5;

/** Spot, of one chip: what every node here is. */
function usdPerSecond(zone: string): number {
  const price = LIST_PRICES[`v5litepod@${zone.slice(0, -2)}`] ?? LIST_PRICES.v5litepod;
  return (price?.spot_usd ?? Number.NaN) / 3600;
}

/** How long a zone is left alone that has no quota for us, and one that refused for another reason: see LIMITS. */
const QUOTA_S = 300;
const REFUSED_S = 200;

const OVER = ['SUSPENDED', 'FAILED'];
const MENDING = ['REPAIRING', 'RESTARTING', 'REIMAGING'];
/** So long a repair is waited for: see LIMITS. */
const REPAIR_S = 600;

/** Longer than what a node that was adopted has to say what it works on. */
const AN_HEARING_MS = 300_000;

function isOpen({data}: Stored): boolean {
  return data.status === 'pending' || data.status === 'in_progress';
}

/** So old may be what a commit that hangs was decided from: a plan of a tick, and a transaction that is ended after 270 s. */
const HUNG_MINUTES = 6;

export class Invariants {
  violation: string | undefined;
  readonly #setting: Setting;
  readonly #written = new Set<string>();
  /** On whose behalf the present call is made. */
  actor: Actor;
  /** Control messages that must have left a record at the end, and those that had to be rejected. */
  #expected = new Map<string, 'rejected' | undefined>();
  readonly #stopped = new Set<string>();
  /** Whom the last complete tick left there without money, and when it ended. */
  #poor: {at: number; workers: Set<string>} = {at: 0, workers: new Set()};
  #calmMinutes = 0;
  /** For how many minutes nothing has been wanted, and there were TPUs, or it ticked. */
  #orphanMinutes = 0;
  #tickerMinutes = 0;
  /** What messages made of documents, by their id; those of them that were done to their end. */
  readonly #said = new Map<
    string,
    {path: string; version: number; spent_usd: number; cancelled: string | undefined}
  >();
  readonly #kept: {path: string; version: number; spent_usd: number}[] = [];
  /** Runs that were stopped, and streams that were cancelled, for good. */
  readonly #final = new Set<string>();
  readonly #cancelled = new Set<string>();
  /** Workers that were deleted. */
  readonly #held = new Set<string>();
  /** The documents of lives that have ended. */
  readonly #ended = new Set<string>();
  #wiped_at = Number.NEGATIVE_INFINITY;
  readonly #askedAt = new WeakMap<Said, number>();
  /** The life that each request id in the queue was for. */
  readonly #requests = new Map<string, string>();
  /** What was said of a stream when all its shards were there already. */
  readonly #ofWhole = new WeakSet<Said>();
  /** For how many minutes the pool's money has been spent. */
  #poorMinutes = 0;
  readonly #births = new Map<string, number[]>();

  constructor(setting: Setting) {
    this.#setting = setting;
  }

  #check(holds: boolean, breach: () => string): void {
    if (!holds) this.violation ??= breach();
  }

  /** A shard is written once, and holds the samples that its place in the stream gives it. */
  onObject({name, metadata}: ObjectInfo): void {
    const shard = /^activations\/([^/]+)\/tpu_(\d+)\/shard_(\d+)\.safetensors$/.exec(name);
    if (!shard) return;
    this.#check(!this.#written.has(name), () => `${name} was written twice`);
    this.#written.add(name);
    const stream = `datasets/${shard[1]}/stream_${String(shard[2]).padStart(3, '0')}.jsonl`;
    const plan = planShards(this.#contentOf(stream, metadata.stream_crc32c))[Number(shard[3]) - 1];
    const isRight = plan !== undefined && this.#setting.objects.text(name) === storedText(plan);
    this.#check(isRight, () => `${name} holds other samples than its own`);
  }

  #contentOf(stream: string, crc32c: unknown): string {
    return this.#setting.contents.get(`${stream}#${crc32c}`) ?? '';
  }

  onCommit(path: string, before: Document | undefined, after: Document | undefined): void {
    const [collection, id = '', ...rest] = path.split('/');
    this.#check(after !== undefined, () => `${path} was deleted`);
    if (!after) return;
    if (collection === 'runs' && rest.length === 0) this.#onRun(id, before, after);
    if (collection === 'runs' && rest.length === 2) this.#onStream(path, before, after);
    if (collection === 'workers' && rest.length === 0) this.#onWorker(id, before, after);
    if (collection === 'zones' && before) this.#onZone(before as unknown as Zone, after as unknown as Zone);
    if (collection === 'workers' && rest.length === 2 && before === undefined) {
      this.#setting.see(`a life ends: ${after.cause_kind}`);
      this.#checkDrained(id, after);
    }
    if (collection === 'control') this.#onSaid(id, after);
    if (!before) this.#checkRestored(path, after);
    const isPassing = collection === 'events' || collection === 'control' || rest[0] === 'attempts';
    const isKeptFor_ms = Date.parse(String(after.expire_at)) - this.#setting.clockwork.now;
    this.#check(!isPassing || isKeptFor_ms > A_WEEK_MS, () => `${path} is kept until ${after.expire_at}`);
    if (collection === 'control') {
      const {action} = /"action":"(?<action>\w+)"/.exec(String(after.message))?.groups ?? {};
      const isNonsense = this.#expected.get(id) === 'rejected';
      this.#setting.see(`people say: ${isNonsense ? 'nonsense' : action} (${after.outcome})`);
    }
    for (const field of COUNTED_TOMORROW)
      if (after[field] !== undefined) this.#setting.see(`tomorrow's code counts: ${field}`);
    if (before && collection !== 'control') this.#checkKept(path, before, after);
    if (collection === 'control')
      this.#check(before === undefined, () => `control message ${id} was done twice`);
  }

  /** Today's code keeps what tomorrow's has written. */
  #checkKept(path: string, before: Document, after: Document): void {
    for (const field of COUNTED_TOMORROW.filter(field => before[field] !== undefined))
      this.#check(
        Number(after[field]) >= Number(before[field]),
        () => `${path}: tomorrow's ${field} ${before[field]} became ${after[field]}`,
      );
    const [held, lease] = [before.lease as Lease | null, after.lease as Lease | null];
    const isSame = held?.granted_by && lease?.epoch === held.epoch;
    this.#check(
      !isSame || lease?.granted_by === held.granted_by,
      () => `${path}: tomorrow's word in its lease was lost`,
    );
  }

  #onRun(run: string, before: Document | undefined, after: Document): void {
    const {status, streams_pending, streams_in_progress} = after;
    this.#setting.see(`a run is: ${status}`);
    const isFinal = before?.status === 'cancelled' || this.#final.has(run);
    this.#check(
      !isFinal || status === 'cancelled',
      () => `run ${run} was stopped for good, and is ${status}`,
    );
    const isAwoken = before?.status === 'paused' && status === 'active';
    const isSaid = this.actor && 'topic' in this.actor && this.actor.topic === 'control';
    this.#check(!isAwoken || isSaid === true, () => `run ${run} was paused, and nobody said that it goes on`);
    const isOver = status === 'completed' || status === 'failed';
    const left = Number(streams_pending) + Number(streams_in_progress);
    this.#check(!isOver || left === 0, () => `run ${run} is ${status} with ${left} streams unfinished`);
  }

  #onStream(path: string, before: Document | undefined, after: Document): void {
    const [held, lease] = [before?.lease as Lease | null | undefined, after.lease as Lease | null];
    this.#setting.see(`a stream is: ${after.status}`);
    if (before && after.status !== 'failed') this.#cancelled.delete(path);
    const isLeased = after.status === 'in_progress';
    if (held && held.epoch !== lease?.epoch) this.#checkActor(path, held, after);
    if (held && after.status === 'pending') this.#checkTaken(path, held);
    this.#check(
      isLeased === (lease !== null),
      () => `${path} is ${after.status} with lease ${JSON.stringify(lease)}`,
    );
    if (lease) {
      this.#check(
        lease.epoch === after.epoch,
        () => `${path} has a lease of epoch ${lease.epoch} in ${after.epoch}`,
      );
      this.#checkHolder(path, lease, held ?? null);
    }
    if (before) {
      for (const field of ['epoch', 'total_shards'] as const)
        this.#check(
          Number(after[field]) >= Number(before[field]),
          () => `${path}: ${field} fell from ${before[field]} to ${after[field]}`,
        );
      const isUndone = before.status === 'completed' && after.status !== 'completed';
      this.#check(!isUndone, () => `${path} was completed and is ${after.status}`);
    }
    if (before) this.#checkBlame(path, before, after);
    const isRevived = before?.status === 'failed' && after.status === 'pending';
    const isSaid = this.actor && 'topic' in this.actor && this.actor.topic === 'control';
    this.#check(
      !isRevived || isSaid === true || before.generation !== after.generation,
      () => `${path} was parked, and is tried again though nobody said so`,
    );
    this.#checkCheckpoint(path, after);
  }

  #checkBlame(path: string, before: Document, after: Document): void {
    const said = this.actor && 'said' in this.actor ? this.actor.said : undefined;
    const holder = this.#setting.store.peek(paths.worker((before.lease as Lease | null)?.worker ?? ''));
    const known = {
      death: holder ? String(holder.last_death) : null,
      wasWhole: said !== undefined && this.#ofWhole.has(said),
    };
    const breach = breachOfBlame(before as unknown as Stream, after as unknown as Stream, said, known);
    this.#check(breach === undefined, () => `${path} ${breach}: ${after.last_error}`);
  }

  /** A worker's word has come. */
  onAsked(said: Said): void {
    this.#askedAt.set(said, this.#setting.clockwork.now);
    const {objects, store} = this.#setting;
    const stream = said.lease && store.peek(paths.stream(said.lease.run, said.lease.stream));
    if (!stream) return;
    const prefix = `activations/${stream.run}/tpu_${stream.worker_id}/shard_`;
    const stored = objects.list(prefix).filter(({metadata}) => metadata.stream_crc32c === stream.crc32c);
    const all = planShards(this.#contentOf(String(stream.object), stream.crc32c)).length;
    if (stored.length === all) this.#ofWhole.add(said);
  }

  /** A worker's word changes its own lease alone, and only the one that it has now. */
  #checkActor(path: string, held: Lease, after: Document): void {
    const said = this.actor && 'said' in this.actor ? this.actor.said : undefined;
    // Whoever looks first at a final shard, or at one that does not belong there, ends the stream.
    if (!said?.lease || said.action === 'lease' || after.status === 'completed') return;
    const isOwn =
      said.worker === held.worker &&
      said.incarnation === held.incarnation &&
      said.lease.epoch === held.epoch &&
      path === paths.stream(said.lease.run, said.lease.stream);
    this.#check(
      isOwn || /another|other content/.test(String(after.last_error)),
      () =>
        `${path}, leased to ${held.worker}#${held.incarnation} in epoch ${held.epoch}, changed at the word of ${JSON.stringify(said)}`,
    );
  }

  /** A lease goes to a life that is current and has no other, and is not taken from one that still holds. */
  #checkHolder(path: string, lease: Lease, held: Lease | null): void {
    const isGranted = held?.epoch !== lease.epoch;
    const moved = held && (held.worker !== lease.worker || held.incarnation !== lease.incarnation);
    this.#check(
      !moved || isGranted,
      () => `${path} went from ${held?.worker} to ${lease.worker} in one epoch`,
    );
    if (!isGranted) return;
    const said = this.actor && 'said' in this.actor ? this.actor.said : undefined;
    const run = this.#setting.store.peek(path.split('/', 2).join('/'));
    this.#check(
      said?.action !== 'lease' || run?.status === 'active',
      () => `${path} was given to ${lease.worker}, and its run is ${run?.status}`,
    );
    if (said?.action === 'lease' && !held) this.#checkPriority(path, Number(run?.priority), said);
    this.#check(
      !moved,
      () => `${path} went from ${held?.worker} to ${lease.worker}, and was not free between`,
    );
    for (const run of this.#setting.store.collection('runs'))
      for (const {path: other, data} of this.#setting.store.collection(`${run.path}/streams`)) {
        const theirs = data.lease as Lease | null;
        const isTwo =
          other !== path && theirs?.worker === lease.worker && theirs.incarnation === lease.incarnation;
        this.#check(!isTwo, () => `${lease.worker} has both ${path} and ${other}`);
      }
  }

  /** What was waiting for a minute when the worker asked, in a run with a higher priority, goes first. */
  #checkPriority(path: string, priority: number, said: Said): void {
    const {store} = this.#setting;
    const since = (this.#askedAt.get(said) ?? 0) - 60_000 - 2 * MOST_SKEW_MS;
    const isOld = ({data}: Stored) => Date.parse(String(data.updated_at)) < since;
    const higher = store
      .collection('runs')
      .filter(run => run.data.status === 'active' && Number(run.data.priority) > priority && isOld(run))
      .filter(({data}) => data.rebuilt_at === null);
    const first = higher
      .flatMap(run => store.collection(`${run.path}/streams`))
      .find(stream => stream.data.status === 'pending' && isOld(stream));
    this.#check(
      !first,
      () => `${path} was given away before ${first?.path}, whose run has a higher priority`,
    );
  }

  /** Who lives, and has said lately that it has a lease, loses it by its own word or a person's alone. */
  #checkTaken(path: string, held: Lease): void {
    const {clockwork, config, store} = this.#setting;
    if (this.actor && ('said' in this.actor || this.actor.topic === 'control')) return;
    const worker = store.peek(paths.worker(held.worker)) as Worker | undefined;
    const isTheirs = worker?.incarnation === held.incarnation && worker.epoch === held.epoch;
    if (!worker || !isTheirs || !isAlive(worker) || path !== `runs/${worker.work?.replace('/', '/streams/')}`)
      return;
    const silent_ms = clockwork.now - Date.parse(worker.claimed_at ?? worker.phase_since_at);
    this.#check(
      silent_ms > config.lease_s * 1000 - 2 * MOST_SKEW_MS,
      () => `${path} was taken from ${held.worker}, who said ${silent_ms} ms before that it has it`,
    );
  }

  /** The checkpoint says no more than the bucket holds: a prefix of shards without a gap. */
  #checkCheckpoint(path: string, stream: Document): void {
    const all = planShards(this.#contentOf(String(stream.object), stream.crc32c));
    const counted = all.slice(0, Number(stream.total_shards));
    const prefix = `activations/${stream.run}/tpu_${stream.worker_id}/shard_`;
    const nameOf = (shard: number) => `${prefix}${String(shard).padStart(4, '0')}.safetensors`;
    const crcOf = (shard: number) => this.#setting.objects.info(nameOf(shard))?.metadata.stream_crc32c;
    const lacking = counted.find(({shard}) => crcOf(shard) !== stream.crc32c);
    this.#check(!lacking, () => `${path} counts shard ${lacking?.shard}, of which its content has none`);
    const expected = {
      total_shards: counted.length,
      total_samples_processed: counted.reduce((sum, plan) => sum + good(plan).length, 0),
      last_processed_sample_idx: counted.at(-1)?.last ?? -1,
    };
    for (const [field, value] of Object.entries(expected))
      this.#check(
        stream[field] === value,
        () => `${path} says ${field} ${stream[field]}, its shards say ${value}`,
      );
    const isWhole = counted.length === all.length;
    this.#check(
      stream.status !== 'completed' || isWhole,
      () => `${path} is completed without its last shard`,
    );
  }

  #onWorker(name: string, before: Document | undefined, after: Document): void {
    this.#setting.see(`a worker is: ${after.phase}`);
    const said = this.actor && 'said' in this.actor ? this.actor.said : undefined;
    // Whoever looks first at a shard that does not belong into its stream takes that from whoever has it.
    const same = said?.lease && `${said.lease.run}/${said.lease.stream}`;
    const losesSame = same && before?.work === same && after.work === null;
    this.#check(
      !said || losesSame || (said.worker === name && said.incarnation === after.incarnation),
      () => `${name}#${after.incarnation} changed at the word of ${said?.worker}#${said?.incarnation}`,
    );
    if (!before) return;
    if (!after.held) this.#held.delete(paths.worker(name));
    const [old, life] = [Number(before.incarnation), Number(after.incarnation)];
    this.#check(life >= old, () => `${name}: the incarnation fell from ${old} to ${life}`);
    const hasEnded = !['deleting', 'gone'].includes(String(before.phase)) && after.phase === 'deleting';
    if (hasEnded) this.#ended.add(paths.attempt(name, old));
    const isBorn = before.phase !== 'creating' && after.phase === 'creating';
    this.#check(!isBorn || before.phase === 'gone', () => `${name} was created while it was ${before.phase}`);
    this.#check(!isBorn || life > old, () => `${name} was created again as incarnation ${life}`);
    const isAskedAgain =
      after.phase === 'creating' && before.phase === 'creating' && after.asked_at !== before.asked_at;
    if (isBorn || isAskedAgain) this.#onBirth(String(after.zone));
    this.#check(!isBorn || !before.held, () => `${name} was deleted, and is made again`);
    if (isBorn) this.#checkBudget(name);
    const node = this.#setting.tpus.nodes.get(name);
    const isThere = node?.state === 'READY' && Number(node.metadata['gleaner-incarnation']) === life;
    const isDenied = after.last_death !== before.last_death && /vanished/.test(String(after.last_death));
    this.#check(!isDenied || !isThere, () => `${name} is said to have vanished, and it is READY`);
  }

  /** A zone is asked for no more nodes in an hour than it may be. */
  #onBirth(zone: string): void {
    const {now} = this.#setting.clockwork;
    const hour = 3_600_000 - 2 * MOST_SKEW_MS;
    const births = [...(this.#births.get(zone) ?? []), now].filter(birth => now - birth < hour);
    this.#births.set(zone, births);
    this.#check(
      births.length <= this.#setting.mostCreates,
      () => `${zone} was asked for ${births.length} nodes in an hour`,
    );
  }

  /** A zone that refused is left alone for a while, and so is one whose last three nodes or more were all lost young. */
  #onZone(before: Zone, after: Zone): void {
    const {now} = this.#setting.clockwork;
    const isBlocked = after.blocked_until_at !== before.blocked_until_at && after.blocked_until_at !== null;
    const blocked_s = (Date.parse(after.blocked_until_at ?? '') - Date.parse(after.updated_at)) / 1000;
    const least_s = /quota/.test(after.blocked_reason ?? '') ? QUOTA_S : REFUSED_S;
    this.#check(
      !isBlocked || blocked_s === least_s,
      () => `${after.zone} is left alone for ${blocked_s} s: ${after.blocked_reason}`,
    );
    const asked = after.creates.at(-1)?.asked_at;
    if (asked === undefined || asked === before.creates.at(-1)?.asked_at) return;
    const stays =
      before.blocked_until_at === after.blocked_until_at ? Date.parse(before.blocked_until_at ?? '') : 0;
    this.#check(
      !(stays > now + MOST_SKEW_MS),
      () => `${after.zone} is asked, and it refused until ${after.blocked_until_at}`,
    );
    const since = (minutes: number) =>
      before.losses.filter(({ended_at}) => Date.parse(ended_at) > now - minutes * 60_000);
    const isChurning = since(25).length >= 3 && since(35).every(({lived_s}) => lived_s < 300);
    this.#check(!isChurning, () => `${after.zone} is asked, and lost ${JSON.stringify(since(25))}`);
  }

  onNodeDeleted(node: Tpu | undefined): void {
    this.#check(node?.labels['managed-by'] !== 'somebody', () => `${node?.name} is deleted, and is not ours`);
  }

  /** Where money is no object, whoever is not needed any more finishes the shard that it has in hand. */
  #checkDrained(name: string, {cause_kind, last_phase, work}: Document): void {
    const {config, store} = this.#setting;
    const pool = (store.peek(paths.pool('tpu')) as Pool | undefined) ?? config.pool;
    const isFree = pool.budget_usd === null && pool.version === 0;
    const isCut = cause_kind === 'not-needed' && last_phase === 'working' && work !== null;
    const isAnyRunPoor = store.collection('runs').some(({data}) => Number(data.version) > 0);
    this.#check(!isCut || !isFree || isAnyRunPoor, () => `${name} was deleted at work on ${work}`);
  }

  /** Cloud TPU is asked for a node. */
  onAskedFor({name, labels, metadata, queue}: TpuRequest): void {
    const {clockwork, config} = this.#setting;
    const incarnation = metadata['gleaner-incarnation'];
    const isLabelled = labels['managed-by'] === 'gleaner' && labels['gleaner-incarnation'] === incarnation;
    this.#check(isLabelled, () => `${name} is asked for with labels ${JSON.stringify(labels)}`);
    if (!queue) return;
    const waits_s = (Date.parse(queue.valid_until_at) - clockwork.now) / 1000;
    const most_s = config.placement.queue_s + MOST_SKEW_MS / 1000;
    this.#check(waits_s <= most_s, () => `${name} may wait in the queue for ${waits_s} s`);
    // Of what was asked before the Store was lost, a call may be late.
    if (clockwork.now - this.#wiped_at < HUNG_MINUTES * 60_000) return;
    const life = `${name}#${incarnation} of Store ${this.#wiped_at}`;
    const other = this.#requests.get(queue.request_id) ?? life;
    this.#requests.set(queue.request_id, other);
    this.#check(other === life, () => `${life} is asked for with the request id of ${other}`);
  }

  /** Nothing is made with money that is spent. */
  #checkBudget(name: string): void {
    const allowed = this.#setting.faults.hang > 0 ? HUNG_MINUTES : 1;
    const {budget_usd, spent_usd} = this.#money();
    this.#check(
      budget_usd === null || spent_usd < budget_usd || this.#poorMinutes <= allowed,
      () => `${name} was made when $${spent_usd} of $${budget_usd} were spent for ${this.#poorMinutes} min`,
    );
  }

  #money(): {budget_usd: number | null; spent_usd: number} {
    const {clockwork, config, store} = this.#setting;
    const {budget_usd, spent_usd} = (store.peek('pools/tpu') as Pool | undefined) ?? config.pool;
    if (budget_usd === null) return {budget_usd, spent_usd};
    const workers = store.collection('workers').map(({data}) => data as unknown as Worker);
    return {budget_usd, spent_usd: spent_usd + costOfLiving(workers, clockwork.now - MOST_SKEW_MS).total};
  }

  /** Nobody goes on under a lease that is over: what a worker is told agrees with the stream as it is. */
  onAnswer(said: Said, status: number, answer: Document): void {
    const what = said.outcome === undefined ? '' : `${said.outcome}: `;
    this.#setting.see(`${said.action} is answered: ${what}${answer.action ?? status}`);
    const {lease, worker, incarnation} = said;
    if (said.action !== 'heartbeat' || !lease || (answer.action !== 'continue' && answer.action !== 'drain'))
      return;
    const {store} = this.#setting;
    const stream = store.peek(paths.stream(lease.run, lease.stream));
    // Whose documents were lost goes on until they are made again.
    if (!stream || !store.peek(paths.run(lease.run)) || !store.peek(paths.worker(worker))) return;
    // Whoever stored the last shard is told to go on until it has given the stream back.
    if (stream.status === 'completed') return;
    const held = stream.lease as Lease | null;
    const isHeld = held?.epoch === lease.epoch && held.worker === worker && held.incarnation === incarnation;
    this.#check(
      isHeld,
      () =>
        `${worker}#${incarnation} was told to ${answer.action} in epoch ${lease.epoch}, and the lease is ${JSON.stringify(held)}`,
    );
  }

  /** Workers that may not cost another minute: the pool's money is spent, or that of the run they work for. */
  #withoutMoney(): Set<string> {
    const {clockwork, config, store} = this.#setting;
    const now = clockwork.now - MOST_SKEW_MS;
    const pool = (store.peek('pools/tpu') as Pool | undefined) ?? config.pool;
    const workers = store.collection('workers').map(({data}) => data as unknown as Worker);
    const living = costOfLiving(workers, now);
    const isOver = (budget: number | null, spent: number) => budget !== null && spent >= budget;
    const isPoor = (worker: Worker) => {
      const id = payerOf(worker);
      const run = id === null ? undefined : (store.peek(paths.run(id)) as Run | undefined);
      const spent = (run?.spent_usd ?? 0) + (living.runs.get(id ?? '') ?? 0);
      return isOver(pool.budget_usd, pool.spent_usd + living.total) || isOver(run?.budget_usd ?? null, spent);
    };
    const poor = workers.filter(
      worker => (isAlive(worker) || worker.phase === 'creating') && isPoor(accrue(worker, now)),
    );
    return new Set(poor.map(({name, incarnation}) => `there is no money for ${name}#${incarnation}`));
  }

  /** What a tick has to see to: nodes without money, those that were taken away or that nobody wants, and streams whose event was lost. */
  #toDo(): Set<string> {
    return new Set([...this.#withoutMoney(), ...this.#taken(), ...this.#unwanted(), ...this.#missed()]);
  }

  #living(): Worker[] {
    const workers = this.#setting.store.collection('workers').map(({data}) => data as unknown as Worker);
    return workers.filter(worker => isAlive(worker) || worker.phase === 'creating');
  }

  #taken(): string[] {
    const {clockwork, tpus} = this.#setting;
    return this.#living().flatMap(({name, incarnation, zone, fault, provider_since_at}) => {
      if (fault !== null) return [`${name}#${incarnation} cannot work: ${fault}`];
      const queued = tpus.queue.get(name);
      const isFromQueue = Number(queued?.request.labels['gleaner-incarnation']) === incarnation;
      if (isFromQueue && queued && OVER.includes(queued.state) && !tpus.zone(zone).unreachable)
        return [`${name}#${incarnation} is ${queued.state}`];
      const node = tpus.nodes.get(name);
      const isOver = node && TAKEN.includes(node.state) && node.changed_at < clockwork.now - STALE_MS;
      const isSeen =
        Number(node?.metadata['gleaner-incarnation']) === incarnation && !tpus.zone(zone).unreachable;
      const mended_ms = clockwork.now - Date.parse(provider_since_at ?? '');
      const isLost = node && MENDING.includes(node.state) && mended_ms > REPAIR_S * 1000 + 2 * MOST_SKEW_MS;
      return (isOver || isLost) && isSeen ? [`${name}#${incarnation} is ${node.state}`] : [];
    });
  }

  /** Without a run that goes on, whoever has no work goes; those that a lost Store forgot get time to say what they do. */
  #unwanted(): string[] {
    const {clockwork, store} = this.#setting;
    const isActive = store
      .collection('runs')
      .some(({path, data}) => data.status === 'active' && store.collection(`${path}/streams`).some(isOpen));
    if (isActive) return [];
    const idle = this.#living().filter(
      ({phase, created_at}) =>
        ['creating', 'booting', 'idle'].includes(phase) &&
        Date.parse(created_at) < clockwork.now - AN_HEARING_MS,
    );
    return idle.map(({name, incarnation, phase}) => `nobody wants ${name}#${incarnation}, which is ${phase}`);
  }

  #missed(): string[] {
    const {objects, store, streams} = this.#setting;
    return [...streams.keys()].flatMap(name => {
      const [, run = '', file = ''] = name.split('/');
      const stream = store.peek(paths.stream(run, file.slice(7, 10)));
      const generation = objects.info(name)?.generation;
      const isFresh = stream?.status === 'pending' && stream.epoch === 0 && stream.total_shards === 0;
      const isMissed = !stream || (isFresh && stream.generation !== generation);
      return isMissed && store.peek(paths.run(run))?.status !== 'cancelled' ? [`${name}#${generation}`] : [];
    });
  }

  onTickBegun(): BegunTick {
    return {at: this.#setting.clockwork.now, poor: this.#toDo()};
  }

  /** What is spent is at most the cap and what a tick costs: two that came after each other leave nobody there. */
  onTickEnded({at, poor}: BegunTick): void {
    const still = this.#toDo();
    const left = new Set([...poor].filter(worker => still.has(worker)));
    const both = at > this.#poor.at ? [...left].filter(worker => this.#poor.workers.has(worker)) : [];
    this.#check(both.length === 0, () => `two ticks have left it: ${both}`);
    this.#poor = {at: this.#setting.clockwork.now, workers: left};
  }

  /** A bug of ours, and no fault of the weather. */
  onFailure(error: Error): void {
    const isOurs =
      error instanceof TypeError || error instanceof ReferenceError || error instanceof RangeError;
    this.#check(!isOurs, () => `a function failed on its own: ${error.stack}`);
  }

  /** In the calm, what nobody wants is gone soon, and then nothing ticks. */
  onMinute(tickerOn: boolean): void {
    const {store, tpus, isCalm} = this.#setting;
    const isWanted = () =>
      store
        .collection('runs')
        .some(
          ({path, data}) =>
            data.status !== 'cancelled' &&
            data.status !== 'paused' &&
            store
              .collection(`${path}/streams`)
              .some(({data}) => data.status !== 'completed' && data.status !== 'failed'),
        );
    const {budget_usd, spent_usd} = this.#money();
    this.#poorMinutes = budget_usd !== null && spent_usd >= budget_usd ? this.#poorMinutes + 1 : 0;
    this.#calmMinutes = isCalm ? this.#calmMinutes + 1 : 0;
    const isIdle = this.#calmMinutes > AFTERMATH_MINUTES && !isWanted();
    this.#orphanMinutes = isIdle && tpus.names().length > 0 ? this.#orphanMinutes + 1 : 0;
    this.#tickerMinutes = isIdle && tickerOn ? this.#tickerMinutes + 1 : 0;
    this.#check(
      this.#orphanMinutes <= ORPHAN_MINUTES && this.#tickerMinutes <= TICKER_MINUTES,
      () => `nothing is wanted, and two ticks later there are nodes ${tpus.names()}, ticker ${tickerOn}`,
    );
  }

  /** What a message made of the document that it is about, in the commit that records it. */
  #onSaid(id: string, {message, outcome}: Document): void {
    if (outcome !== 'applied') return;
    const {action, run, stream} = JSON.parse(String(message));
    const path = run === undefined ? paths.pool('tpu') : paths.run(run);
    const {version, spent_usd, cost_usd, status, cancelled_streams} = this.#setting.store.peek(path) ?? {};
    const isKept =
      Number(version) > 0 || status === 'paused' || (cancelled_streams as string[] | undefined)?.length;
    if (action === 'rebuild' || !(isKept || action === 'cancel')) return;
    const spent = Math.max(Number(spent_usd), Number(cost_usd ?? 0));
    const cancelled = action === 'cancel' ? paths.stream(run, stream) : undefined;
    this.#said.set(id, {path, version: Number(version), spent_usd: spent, cancelled});
  }

  /** A message was done to its end: what it said outlives the Store. */
  onObeyed(id: string, {action, run, worker}: Document): void {
    const {store} = this.#setting;
    const said = this.#said.get(id);
    if (said) this.#kept.push(said);
    const isCancelled = (path: string) => /^cancelled/.test(String(store.peek(path)?.last_error));
    if (said?.cancelled && isCancelled(said.cancelled)) this.#cancelled.add(said.cancelled);
    const path = paths.worker(String(worker));
    if (action === 'delete' && store.peek(path)?.held) this.#held.add(path);
    if (action !== 'stop' || store.peek(paths.run(String(run)))?.status !== 'cancelled') return;
    this.#final.add(String(run));
    const leased = store.collection(paths.streams(String(run))).filter(({data}) => data.lease !== null);
    this.#check(
      leased.length === 0,
      () => `run ${run} was stopped, and workers have ${leased.map(({id}) => id)}`,
    );
  }

  /** A document that is made is new, or is as the bucket has kept it. */
  #checkRestored(path: string, after: Document): void {
    for (const kept of this.#kept.filter(kept => kept.path === path))
      this.#check(
        Number(after.version) >= kept.version && Number(after.spent_usd) >= kept.spent_usd - 1e-6,
        () => `${path} has version ${after.version} and $${after.spent_usd}, and had ${JSON.stringify(kept)}`,
      );
    this.#check(
      !this.#held.has(path) || after.held === true,
      () => `${path} was deleted, and is ${after.phase} again`,
    );
    this.#check(
      !this.#cancelled.has(path) || after.status === 'failed' || after.status === 'completed',
      () => `${path} was cancelled, and is ${after.status}`,
    );
  }

  onTickerOff(): void {
    this.#tickerMinutes = 0;
  }

  onStop(run: string): void {
    this.#stopped.add(run);
  }

  expectRecord(message_id: string, outcome: 'rejected' | undefined): void {
    this.#expected.set(message_id, outcome);
  }

  onWipe(): void {
    this.#wiped_at = this.#setting.clockwork.now;
    this.#ended.clear();
    this.#expected = new Map();
    this.#births.clear();
  }

  atTheEnd(tickerOn: boolean, underway: number): void {
    const {store, streams, tpus} = this.#setting;
    for (const object of streams.keys()) this.#checkComplete(object);
    this.#check(tpus.names().length === 0, () => `TPUs are left: ${tpus.names()}`);
    this.#check(!tickerOn, () => 'it still ticks');
    this.#check(underway === 0, () => `${underway} messages are neither handled nor lost`);
    for (const {id, data} of store.collection('workers'))
      this.#check(data.phase === 'gone', () => `${id} is ${data.phase} at the end`);
    for (const path of this.#ended)
      this.#check(store.peek(path) !== undefined, () => `${path} is not recorded`);
    if (this.#wiped_at < 0) this.#checkBills();
    for (const [id, outcome] of this.#expected) {
      const record = store.peek(paths.control(id));
      this.#check(record !== undefined, () => `control message ${id} left no record`);
      const isAsExpected = outcome === undefined || record?.outcome === outcome;
      this.#check(isAsExpected, () => `control message ${id} was ${record?.outcome}: ${record?.message}`);
    }
  }

  /** Every life has cost what its time costs, and each is paid for once. */
  #checkBills(): void {
    const {config, store} = this.#setting;
    const lives = store
      .collection('workers')
      .flatMap(({path}) => store.collection(`${path}/attempts`))
      .filter(({data}) => data.gone_at !== undefined && data.ready_at !== null);
    const owed = new Map<string, number>();
    let total = 0;
    for (const {path, data} of lives) {
      const paid_s = Number(data.cost_usd) / usdPerSecond(String(store.peek(`workers/${data.worker}`)?.zone));
      const lived_s = (Date.parse(String(data.gone_at)) - Date.parse(String(data.ready_at))) / 1000;
      this.#check(
        Math.abs(paid_s - lived_s) <= MOST_MISCOUNTED_S,
        () => `${path} lived for ${lived_s} s, and cost as much as ${paid_s} s`,
      );
      total += Number(data.cost_usd);
      for (const [run, usd] of Object.entries(data.costs as Record<string, number>))
        owed.set(run, (owed.get(run) ?? 0) + usd);
    }
    const spent = Number(store.peek('pools/tpu')?.spent_usd ?? config.pool.spent_usd);
    this.#check(
      Math.abs(spent - total) < 1e-6,
      () => `the pool has spent $${spent}, its lives cost $${total}`,
    );
    for (const {id, data} of store.collection('runs'))
      this.#check(
        Math.abs(Number(data.spent_usd) - (owed.get(id) ?? 0)) < 1e-6,
        () => `run ${id} has spent $${data.spent_usd}, its lives cost $${owed.get(id) ?? 0}`,
      );
  }

  /** Objects in which work is kept are never deleted. */
  onDeleted(name: string): void {
    this.#check(name.startsWith('partials/'), () => `${name} was deleted`);
  }

  #checkComplete(object: string): void {
    const {store} = this.#setting;
    const [, run = '', file = ''] = object.split('/');
    const document = store.peek(paths.run(run));
    if (document?.status === 'cancelled') {
      this.#check(this.#stopped.has(run), () => `run ${run} is cancelled, and nobody stopped it`);
      return;
    }
    const stream = store.peek(paths.stream(run, file.slice(7, 10)));
    const stuck = this.#stuckOf(run);
    this.#check(
      document?.status === (stuck.size > 0 ? 'failed' : 'completed'),
      () => `run ${run} is ${document?.status}: ${document?.reason}`,
    );
    if (stuck.has(file.slice(7, 10))) return;
    this.#check(
      stream?.status === 'completed',
      () => `${object} is ${stream?.status} at the end: ${stream?.last_error}`,
    );
    const shards = planShards(this.#contentOf(object, stream?.crc32c)).length;
    this.#check(
      stream?.total_shards === shards,
      () => `${object} has ${stream?.total_shards} of ${shards} shards`,
    );
    if (stuck.size === 0) this.#checkResult(run);
  }

  /**
   * The parked streams that have shards of two contents: an upload that hung came in when the stream had other content already, of
   * which another shard was stored. Somebody has to move those of one content away.
   */
  #stuckOf(run: string): Set<string> {
    const {objects, store} = this.#setting;
    const parked = store.collection(paths.streams(run)).filter(({data}) => data.status === 'failed');
    const stuck = parked.filter(({data}) => {
      const shards = objects.list(`activations/${run}/tpu_${data.worker_id}/shard_`);
      return new Set(shards.map(({metadata}) => metadata.stream_crc32c)).size > 1;
    });
    if (stuck.length > 0) this.#setting.see('a stream has shards of two contents');
    return new Set(stuck.map(({id}) => id));
  }

  /** Nobody here writes a metadata.json, so the result is what the shards say, and counts every stream as unread. */
  #checkResult(run: string): void {
    const {store, objects} = this.#setting;
    const streams = store.collection(paths.streams(run)).map(({data}) => data);
    const {result} = JSON.parse(objects.text(manifestObject(run)) ?? '{}');
    const samples = streams.reduce((sum, stream) => sum + Number(stream.total_samples_processed), 0);
    const said = [result?.streams, result?.samples, Object.keys(result?.unread ?? {}).length];
    this.#check(
      said.join() === [streams.length, samples, streams.length].join(),
      () => `the manifest of ${run} says ${said} of ${streams.length} streams with ${samples} samples`,
    );
  }
}
