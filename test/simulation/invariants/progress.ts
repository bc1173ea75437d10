/** Progress: a shard is stored once, a counted shard is stored, and a completed stream has all its shards. */
import {manifestObject, paths} from '../../../shared/domain/names.ts';
import type {Document, ObjectInfo} from '../../../shared/ports.ts';
import {good, type Plan, planShards, storedText} from '../../support/shard-plan.ts';
import type {Context} from '../context.ts';
import {MOST_LATE_MINUTES} from '../faults.ts';
import type {Violations} from './violations.ts';

/** Before the first care of operators in the calm. */
const FOUND_WITHIN_MINUTES = 14;

const SUMMED = ['total_samples_processed', 'rejected_samples', 'total_tokens', 'total_shards', 'total_bytes'];

/** The shards that a stream object has to give, of the content with this checksum. */
function planOf({contents}: Context, object: string, crc32c: unknown): Plan[] {
  return planShards(contents.get(`${object}#${crc32c}`) ?? '');
}

function shardPrefix({run, worker_id}: Document): string {
  return `activations/${run}/tpu_${worker_id}/shard_`;
}

/** Whether the bucket has every shard of the content that the stream has now. */
export function isWhole(context: Context, stream: Document): boolean {
  const {crc32c, object} = stream;
  const shards = context.objects.list(shardPrefix(stream));
  const stored = shards.filter(({metadata}) => metadata.stream_crc32c === crc32c);
  return stored.length === planOf(context, String(object), crc32c).length;
}

export class Progress {
  readonly #context: Context;
  readonly #violations: Violations;
  readonly #written = new Set<string>();
  #calmMinutes = 0;

  constructor(context: Context, violations: Violations) {
    this.#context = context;
    this.#violations = violations;
  }

  /** A shard is written once, and holds the samples that its place in the stream gives it. */
  onObject({name, metadata}: ObjectInfo): void {
    const shard = /^activations\/([^/]+)\/tpu_(\d+)\/shard_(\d+)\.safetensors$/.exec(name);
    if (!shard) return;
    this.#violations.check(!this.#written.has(name), () => `${name} was written twice`);
    this.#written.add(name);
    const stream = `datasets/${shard[1]}/stream_${String(shard[2]).padStart(3, '0')}.jsonl`;
    const plan = planOf(this.#context, stream, metadata.stream_crc32c)[Number(shard[3]) - 1];
    const isRight = plan !== undefined && this.#context.objects.text(name) === storedText(plan);
    this.#violations.check(isRight, () => `${name} holds other samples than its own`);
  }

  /** Objects in which work is kept are never deleted. */
  onDeleted(name: string): void {
    this.#violations.check(name.startsWith('partials/'), () => `${name} was deleted`);
  }

  onRun(run: string, {status, streams_pending, streams_in_progress}: Document): void {
    const isOver = status === 'completed' || status === 'failed';
    const left = Number(streams_pending) + Number(streams_in_progress);
    this.#violations.check(
      !isOver || left === 0,
      () => `run ${run} is ${status} with ${left} streams unfinished`,
    );
  }

  /** A stream that is made again knows the largest epoch of its shards, so the next grant is above it. */
  onStreamCreated(path: string, stream: Document): void {
    const {clockwork, objects, storm} = this.#context;
    const since = clockwork.now - (storm.hang > 0 ? MOST_LATE_MINUTES : 3) * 60_000;
    const old = objects
      .list(shardPrefix(stream))
      .filter(({name, created_at}) => name.endsWith('.safetensors') && Date.parse(created_at) < since);
    const epoch = Math.max(0, ...old.map(({metadata}) => Number(metadata.epoch)));
    this.#violations.check(
      Number(stream.epoch) >= epoch,
      () => `${path} is made with epoch ${stream.epoch}, and its shards have epoch ${epoch}`,
    );
  }

  /** The progress of a stream only grows. */
  onStreamChange(path: string, before: Document, after: Document): void {
    for (const field of ['epoch', 'total_shards'] as const)
      this.#violations.check(
        Number(after[field]) >= Number(before[field]),
        () => `${path}: ${field} fell from ${before[field]} to ${after[field]}`,
      );
    const isUndone = before.status === 'completed' && after.status !== 'completed';
    this.#violations.check(!isUndone, () => `${path} was completed and is ${after.status}`);
  }

  /** The checkpoint says no more than the bucket holds: a prefix of shards without a gap. */
  onStream(path: string, stream: Document): void {
    if (stream.blocked_reason) this.#context.see('a shard has an epoch that was never granted');
    const all = planOf(this.#context, String(stream.object), stream.crc32c);
    const counted = all.slice(0, Number(stream.total_shards));
    const nameOf = (shard: number) => `${shardPrefix(stream)}${String(shard).padStart(4, '0')}.safetensors`;
    const crcOf = (shard: number) => this.#context.objects.info(nameOf(shard))?.metadata.stream_crc32c;
    const lacking = counted.find(({shard}) => crcOf(shard) !== stream.crc32c);
    this.#violations.check(
      !lacking,
      () => `${path} counts shard ${lacking?.shard}, and its content has no such shard`,
    );
    const epochOf = (shard: number) => Number(this.#context.objects.info(nameOf(shard))?.metadata.epoch);
    const ungranted = counted.find(({shard}) => epochOf(shard) > Number(stream.epoch));
    this.#violations.check(
      !ungranted,
      () => `${path} counts shard ${ungranted?.shard}, and its largest epoch is ${stream.epoch}`,
    );
    const expected = {
      total_shards: counted.length,
      total_samples_processed: counted.reduce((sum, plan) => sum + good(plan).length, 0),
      last_processed_sample_idx: counted.at(-1)?.last ?? -1,
    };
    for (const [field, value] of Object.entries(expected))
      this.#violations.check(
        stream[field] === value,
        () => `${path} says ${field} ${stream[field]}, its shards say ${value}`,
      );
    this.#violations.check(
      stream.status !== 'completed' || counted.length === all.length,
      () => `${path} is completed without its last shard`,
    );
  }

  /** In the calm, a stream without a document is found soon, though its events were lost. */
  onMinute(): void {
    const {isCalm, objects, store, streams} = this.#context;
    this.#calmMinutes = isCalm ? this.#calmMinutes + 1 : 0;
    if (this.#calmMinutes !== FOUND_WITHIN_MINUTES) return;
    for (const name of streams.keys()) {
      const [, run = '', file = ''] = name.split('/');
      const isClosed = store.peek(paths.run(run))?.stopped_at != null;
      this.#violations.check(
        isClosed || !objects.info(name) || store.peek(paths.stream(run, file.slice(7, 10))) !== undefined,
        () => `${name} has no document after ${FOUND_WITHIN_MINUTES} minutes of calm`,
      );
    }
  }

  /** A dropped stream is complete at the end, unless its run was stopped. */
  atTheEnd(): void {
    for (const object of this.#context.streams.keys()) this.#checkComplete(object);
    for (const {id, data} of this.#context.store.collection('runs')) this.#checkTotals(id, data);
  }

  /** The totals of a run that has ended are those of its streams, also of shards that came after its end. */
  #checkTotals(run: string, document: Document): void {
    const streams = this.#context.store.collection(paths.streams(run));
    for (const field of SUMMED) {
      const sum = streams.reduce((total, {data}) => total + Number(data[field]), 0);
      this.#violations.check(
        document[field] === sum,
        () => `run ${run}, which is ${document.status}, has ${field} ${document[field]}, its streams ${sum}`,
      );
    }
  }

  #checkComplete(object: string): void {
    const {store} = this.#context;
    const [, run = '', file = ''] = object.split('/');
    const document = store.peek(paths.run(run));
    if (document?.status === 'cancelled') return;
    const stream = store.peek(paths.stream(run, file.slice(7, 10)));
    if (stream === undefined && this.#context.isTooLate(document, object)) return;
    const stuck = this.#stuckOf(run);
    this.#violations.check(
      document?.status === (stuck.size > 0 ? 'failed' : 'completed'),
      () => `run ${run} is ${document?.status}: ${document?.reason}`,
    );
    if (stuck.has(file.slice(7, 10))) return;
    this.#violations.check(
      stream?.status === 'completed',
      () => `${object} is ${stream?.status} at the end: ${stream?.last_error}`,
    );
    const shards = planOf(this.#context, object, stream?.crc32c).length;
    this.#violations.check(
      stream?.total_shards === shards,
      () => `${object} has ${stream?.total_shards} of ${shards} shards`,
    );
    if (stuck.size === 0) this.#checkResult(run);
  }

  /**
   * The parked streams that have shards of two contents: an upload that hung came in when the stream had other content already, of
   * which another shard was stored. An operator has to move the shards of one content away.
   */
  #stuckOf(run: string): Set<string> {
    const {objects, store} = this.#context;
    const parked = store.collection(paths.streams(run)).filter(({data}) => data.status === 'failed');
    const stuck = parked.filter(({data}) => {
      const shards = objects.list(shardPrefix(data));
      return new Set(shards.map(({metadata}) => metadata.stream_crc32c)).size > 1;
    });
    if (stuck.length > 0) this.#context.see('a stream has shards of two contents');
    return new Set(stuck.map(({id}) => id));
  }

  /** The worlds write no metadata.json, so the result follows from the shards and counts every stream as unread. */
  #checkResult(run: string): void {
    const {store, objects} = this.#context;
    const streams = store.collection(paths.streams(run)).map(({data}) => data);
    const {result} = JSON.parse(objects.text(manifestObject(run)) ?? '{}');
    const samples = streams.reduce((sum, stream) => sum + Number(stream.total_samples_processed), 0);
    const said = [result?.streams, result?.samples, Object.keys(result?.unread ?? {}).length];
    this.#violations.check(
      said.join() === [streams.length, samples, streams.length].join(),
      () => `the manifest of ${run} says ${said} of ${streams.length} streams with ${samples} samples`,
    );
  }
}
