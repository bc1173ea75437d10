/** What must hold at every moment, and what must have come about at the end. The first breach is kept, with its reason. */
import {accrue, costOfLiving, payerOf} from '../../shared/core/cost.ts';
import {manifestObject, paths} from '../../shared/core/names.ts';
import type {Pool} from '../../shared/core/pool.ts';
import type {Run} from '../../shared/core/run.ts';
import {isAlive, type Worker} from '../../shared/core/worker.ts';
import type {Document, ObjectInfo} from '../../shared/ports.ts';
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
    if (collection === 'runs' && rest.length === 0) this.#onRun(id, after);
    if (collection === 'runs' && rest.length === 2) this.#onStream(path, before, after);
    if (collection === 'workers' && rest.length === 0) this.#onWorker(id, before, after);
    if (collection === 'workers' && rest.length === 2 && before === undefined)
      this.#setting.see(`a life ends: ${after.cause_kind}`);
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

  #onRun(run: string, {status, streams_pending, streams_in_progress}: Document): void {
    this.#setting.see(`a run is: ${status}`);
    const isOver = status === 'completed' || status === 'failed';
    const left = Number(streams_pending) + Number(streams_in_progress);
    this.#check(!isOver || left === 0, () => `run ${run} is ${status} with ${left} streams unfinished`);
  }

  #onStream(path: string, before: Document | undefined, after: Document): void {
    const [held, lease] = [before?.lease as Lease | null | undefined, after.lease as Lease | null];
    this.#setting.see(`a stream is: ${after.status}`);
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
    this.#checkCheckpoint(path, after);
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
    const [old, life] = [Number(before.incarnation), Number(after.incarnation)];
    this.#check(life >= old, () => `${name}: the incarnation fell from ${old} to ${life}`);
    const isBorn = before.phase !== 'creating' && after.phase === 'creating';
    this.#check(!isBorn || before.phase === 'gone', () => `${name} was created while it was ${before.phase}`);
    this.#check(!isBorn || life > old, () => `${name} was created again as incarnation ${life}`);
    if (isBorn) this.#onBirth(String(after.zone));
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
    return new Set(poor.map(({name, incarnation}) => `${name}#${incarnation}`));
  }

  onTickBegun(): BegunTick {
    return {at: this.#setting.clockwork.now, poor: this.#withoutMoney()};
  }

  /** What is spent is at most the cap and what a tick costs: two that came after each other leave nobody there. */
  onTickEnded({at, poor}: BegunTick): void {
    const still = this.#withoutMoney();
    const left = new Set([...poor].filter(worker => still.has(worker)));
    const both = at > this.#poor.at ? [...left].filter(worker => this.#poor.workers.has(worker)) : [];
    this.#check(both.length === 0, () => `two ticks have left ${both} there, for whom there is no money`);
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
    for (const [id, outcome] of this.#expected) {
      const record = store.peek(paths.control(id));
      this.#check(record !== undefined, () => `control message ${id} left no record`);
      const isAsExpected = outcome === undefined || record?.outcome === outcome;
      this.#check(isAsExpected, () => `control message ${id} was ${record?.outcome}: ${record?.message}`);
    }
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
