/** What must hold at every moment, and what must have come about at the end. The first breach is kept, with its reason. */
import {costOfLiving} from '../../shared/core/cost.ts';
import {manifestObject, paths} from '../../shared/core/names.ts';
import type {Pool} from '../../shared/core/pool.ts';
import type {Worker} from '../../shared/core/worker.ts';
import type {Document, ObjectInfo} from '../../shared/ports.ts';
import {MOST_CREATES_PER_HOUR, type Setting} from './setting.ts';
import {good, planShards, storedText} from './streams.ts';

type Lease = {worker: string; incarnation: number; epoch: number; expires_at: string};

/** Clocks of two instances differ by at most so much in a storm. */
const MOST_SKEW_MS = 25_000;
/** Ticks that a TPU may outlive the last work, beside the time that deleting it takes. */
const ORPHAN_MINUTES = 12;

export class Invariants {
  violation: string | undefined;
  readonly #setting: Setting;
  readonly #written = new Set<string>();
  /** Control messages that must have left a record at the end. */
  #expected = new Set<string>();
  #idleMinutes = 0;
  readonly #births = new Map<string, number[]>();

  constructor(setting: Setting) {
    this.#setting = setting;
  }

  #check(holds: boolean, breach: () => string): void {
    if (!holds) this.violation ??= breach();
  }

  /** A shard is written once, and holds the samples that its place in the stream gives it. */
  onObject({name}: ObjectInfo): void {
    const shard = /^activations\/([^/]+)\/tpu_(\d+)\/shard_(\d+)\.safetensors$/.exec(name);
    if (!shard) return;
    this.#check(!this.#written.has(name), () => `${name} was written twice`);
    this.#written.add(name);
    const stream = `datasets/${shard[1]}/stream_${String(shard[2]).padStart(3, '0')}.jsonl`;
    const plan = planShards(this.#setting.streams.get(stream) ?? '')[Number(shard[3]) - 1];
    const isRight = plan !== undefined && this.#setting.objects.text(name) === storedText(plan);
    this.#check(isRight, () => `${name} holds other samples than its own`);
  }

  onCommit(path: string, before: Document | undefined, after: Document | undefined): void {
    const [collection, id = '', ...rest] = path.split('/');
    this.#check(after !== undefined, () => `${path} was deleted`);
    if (!after) return;
    if (collection === 'runs' && rest.length === 0) this.#onRun(id, after);
    if (collection === 'runs' && rest.length === 2) this.#onStream(path, before, after);
    if (collection === 'workers' && rest.length === 0) this.#onWorker(id, before, after);
    if (collection === 'control')
      this.#check(before === undefined, () => `control message ${id} was done twice`);
  }

  #onRun(run: string, {status, streams_pending, streams_in_progress}: Document): void {
    const isOver = status === 'completed' || status === 'failed';
    const left = Number(streams_pending) + Number(streams_in_progress);
    this.#check(!isOver || left === 0, () => `run ${run} is ${status} with ${left} streams unfinished`);
  }

  #onStream(path: string, before: Document | undefined, after: Document): void {
    const [held, lease] = [before?.lease as Lease | null | undefined, after.lease as Lease | null];
    const isLeased = after.status === 'in_progress';
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

  /** A lease goes to a life that is current and has no other, and is not taken from one that still holds. */
  #checkHolder(path: string, lease: Lease, held: Lease | null): void {
    const isGranted = held?.epoch !== lease.epoch;
    const moved = held && (held.worker !== lease.worker || held.incarnation !== lease.incarnation);
    this.#check(
      !moved || isGranted,
      () => `${path} went from ${held?.worker} to ${lease.worker} in one epoch`,
    );
    if (!isGranted) return;
    const expired = !moved || Date.parse(held.expires_at) <= this.#setting.clockwork.now + MOST_SKEW_MS;
    this.#check(
      expired,
      () => `${path} was taken from ${held?.worker}, whose lease holds until ${held?.expires_at}`,
    );
    for (const run of this.#setting.store.collection('runs'))
      for (const {path: other, data} of this.#setting.store.collection(`${run.path}/streams`)) {
        const theirs = data.lease as Lease | null;
        const isTwo =
          other !== path && theirs?.worker === lease.worker && theirs.incarnation === lease.incarnation;
        this.#check(!isTwo, () => `${lease.worker} has both ${path} and ${other}`);
      }
  }

  /** The checkpoint says no more than the bucket holds: a prefix of shards without a gap. */
  #checkCheckpoint(path: string, stream: Document): void {
    const all = planShards(this.#setting.streams.get(String(stream.object)) ?? '');
    const counted = all.slice(0, Number(stream.total_shards));
    const prefix = `activations/${stream.run}/tpu_${stream.worker_id}/shard_`;
    const nameOf = (shard: number) => `${prefix}${String(shard).padStart(4, '0')}.safetensors`;
    const lacking = counted.find(({shard}) => !this.#setting.objects.info(nameOf(shard)));
    this.#check(!lacking, () => `${path} counts shard ${lacking?.shard}, which is not there`);
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
      births.length <= MOST_CREATES_PER_HOUR,
      () => `${zone} was asked for ${births.length} nodes in an hour`,
    );
  }

  /** Nothing is made with money that is spent. */
  #checkBudget(name: string): void {
    const {clockwork, config, store} = this.#setting;
    const pool = (store.peek('pools/tpu') as Pool | undefined) ?? config.pool;
    const workers = store.collection('workers').map(({data}) => data as unknown as Worker);
    const spent = pool.spent_usd + costOfLiving(workers, clockwork.now - MOST_SKEW_MS).total;
    const isPoor = pool.budget_usd !== null && spent >= pool.budget_usd;
    this.#check(!isPoor, () => `${name} was made when $${spent} of $${pool.budget_usd} were spent`);
  }

  /** Nobody goes on under a lease that is over: what a worker is told agrees with the stream as it is. */
  onAnswer(request: object, answer: object): void {
    const {action, lease, worker, incarnation} = request as {action: string; lease: Lease | null} & Lease;
    if (action !== 'heartbeat' || !lease || (answer as Document).action !== 'continue') return;
    const [run, stream] = [(lease as unknown as Document).run, (lease as unknown as Document).stream];
    const found = this.#setting.store.peek(paths.stream(String(run), String(stream)));
    const held = found?.lease as Lease | null | undefined;
    const isOthers =
      held && held.epoch === lease.epoch && (held.worker !== worker || held.incarnation !== incarnation);
    // Another may have come since, in a later epoch.
    this.#check(
      !isOthers,
      () => `${worker}#${incarnation} was told to continue epoch ${lease.epoch}, which is another's`,
    );
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
    const isWanted = store
      .collection('runs')
      .some(
        ({path, data}) =>
          data.status !== 'completed' ||
          store
            .collection(`${path}/streams`)
            .some(({data}) => data.status !== 'completed' && data.status !== 'failed'),
      );
    this.#idleMinutes = isCalm && !isWanted && (tpus.nodes.size > 0 || tickerOn) ? this.#idleMinutes + 1 : 0;
    this.#check(
      this.#idleMinutes <= ORPHAN_MINUTES,
      () =>
        `nothing is wanted for ${this.#idleMinutes} min: nodes ${[...tpus.nodes.keys()]}, ticker ${tickerOn}`,
    );
  }

  expectRecord(message_id: string): void {
    this.#expected.add(message_id);
  }

  onWipe(): void {
    this.#expected = new Set();
    this.#births.clear();
  }

  atTheEnd(tickerOn: boolean): void {
    const {store, streams, tpus} = this.#setting;
    for (const [object, text] of streams) this.#checkComplete(object, text);
    this.#check(tpus.nodes.size === 0, () => `TPUs are left: ${[...tpus.nodes.keys()]}`);
    this.#check(!tickerOn, () => 'it still ticks');
    for (const {id, data} of store.collection('workers'))
      this.#check(data.phase === 'gone', () => `${id} is ${data.phase} at the end`);
    for (const id of this.#expected)
      this.#check(store.peek(paths.control(id)) !== undefined, () => `control message ${id} left no record`);
  }

  #checkComplete(object: string, text: string): void {
    const {store} = this.#setting;
    const [, run = '', file = ''] = object.split('/');
    const stream = store.peek(paths.stream(run, file.slice(7, 10)));
    this.#check(
      stream?.status === 'completed',
      () => `${object} is ${stream?.status} at the end: ${stream?.last_error}`,
    );
    const shards = planShards(text).length;
    this.#check(
      stream?.total_shards === shards,
      () => `${object} has ${stream?.total_shards} of ${shards} shards`,
    );
    const document = store.peek(paths.run(run));
    this.#check(
      document?.status === 'completed',
      () => `run ${run} is ${document?.status}: ${document?.reason}`,
    );
    this.#checkResult(run);
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
