/** Checks that a shard is stored once, that a counted shard is stored, and that a completed stream has all its shards. */
import {manifestObject, paths} from '../../../shared/domain/names.ts';
import type {Document, ObjectInfo} from '../../../shared/ports/ports.ts';
import {good, linesIn, type Plan, planShards, storedText} from '../../world/shard-plan.ts';
import {MAX_HANG_MINUTES} from '../conditions/faults.ts';
import type {Facts} from './facts.ts';
import {Check} from './violations.ts';

const TOTALS = ['total_samples_processed', 'rejected_samples', 'total_tokens', 'total_shards', 'total_bytes'];

/** The shards of a stream object, for the content with this checksum. */
function planOf({contents}: Facts, object: string, crc32c: unknown): Plan[] {
  return planShards(contents.get(`${object}#${crc32c}`) ?? '');
}

function shardPrefix({run, worker_id}: Document): string {
  return `activations/${run}/tpu_${worker_id}/shard_`;
}

/** True if the bucket has every shard of the present content of the stream. */
export function isWhole(context: Facts, stream: Document): boolean {
  const {crc32c, object} = stream;
  const shards = context.objects.list(shardPrefix(stream));
  const stored = shards.filter(({metadata}) => metadata.stream_crc32c === crc32c);
  return stored.length === planOf(context, String(object), crc32c).length;
}

export class Progress extends Check {
  readonly #written = new Set<string>();
  #isRegistered = false;

  /** A shard is written once, and contains the samples at its place in the stream. */
  onObject({name, metadata}: ObjectInfo): void {
    const shard = /^activations\/([^/]+)\/tpu_(\d+)\/shard_(\d+)\.safetensors$/.exec(name);
    if (!shard) return;
    if (this.#written.has(name)) this.breach(`${name} was written twice`);
    this.#written.add(name);
    const stream = `datasets/${shard[1]}/stream_${String(shard[2]).padStart(3, '0')}.jsonl`;
    const plan = planOf(this.context, stream, metadata.stream_crc32c)[Number(shard[3]) - 1];
    const isRight = plan !== undefined && linesIn(this.context.objects.bytes(name)) === storedText(plan);
    if (!isRight) this.breach(`${name} contains the wrong samples`);
  }

  /** The next shard of this name is another object. */
  onSetAside(name: string): void {
    this.context.see('an object is set aside');
    this.#written.delete(name);
  }

  /** Only partial results are ever deleted. */
  onDeleted(name: string): void {
    if (!name.startsWith('partials/')) this.breach(`${name} was deleted`);
  }

  onRun(run: string, {status, certain_failure, streams_pending, streams_in_progress}: Document): void {
    if (certain_failure) this.context.see('a run ends with its first stream');
    const isOver = status === 'completed' || status === 'failed';
    const left = Number(streams_pending) + Number(streams_in_progress);
    if (isOver && left !== 0 && !certain_failure)
      this.breach(`run ${run} is ${status} with ${left} streams unfinished`);
  }

  /** A stream document that is created again has the largest epoch of its shards, so the next epoch is larger. */
  onStreamCreated(path: string, stream: Document): void {
    const {clockwork, objects, storm} = this.context;
    const since = clockwork.now - (storm.hang > 0 ? MAX_HANG_MINUTES : 3) * 60_000;
    const old = objects
      .list(shardPrefix(stream))
      .filter(({name, created_at}) => name.endsWith('.safetensors') && Date.parse(created_at) < since);
    const epoch = Math.max(0, ...old.map(({metadata}) => Number(metadata.epoch)));
    if (!(Number(stream.epoch) >= epoch))
      this.breach(`${path} is created with epoch ${stream.epoch}, and its shards have epoch ${epoch}`);
  }

  /** The progress of a stream only grows. */
  onStreamChange(path: string, before: Document, after: Document): void {
    for (const field of ['epoch', 'total_shards'] as const)
      if (!(Number(after[field]) >= Number(before[field])))
        this.breach(`${path}: ${field} fell from ${before[field]} to ${after[field]}`);
    const isReopened = before.status === 'completed' && after.status !== 'completed';
    if (isReopened) this.breach(`${path} was completed and is ${after.status}`);
  }

  /** The checkpoint counts only shards in the bucket: a prefix without a gap. */
  onStream(path: string, stream: Document): void {
    const all = planOf(this.context, String(stream.object), stream.crc32c);
    const counted = all.slice(0, Number(stream.total_shards));
    const nameOf = (shard: number) => `${shardPrefix(stream)}${String(shard).padStart(4, '0')}.safetensors`;
    const crcOf = (shard: number) => this.context.objects.info(nameOf(shard))?.metadata.stream_crc32c;
    const missing = counted.find(({shard}) => crcOf(shard) !== stream.crc32c);
    if (missing)
      this.breach(`${path} counts shard ${missing?.shard}, and the bucket has no such shard of its content`);
    const epochOf = (shard: number) => Number(this.context.objects.info(nameOf(shard))?.metadata.epoch);
    const ungranted = counted.find(({shard}) => epochOf(shard) > Number(stream.epoch));
    if (ungranted)
      this.breach(`${path} counts shard ${ungranted?.shard}, and its largest epoch is ${stream.epoch}`);
    const expected = {
      total_shards: counted.length,
      total_samples_processed: counted.reduce((sum, plan) => sum + good(plan).length, 0),
      last_processed_sample_idx: counted.at(-1)?.last ?? -1,
    };
    for (const [field, value] of Object.entries(expected))
      if (stream[field] !== value)
        this.breach(`${path} has ${field} ${stream[field]}, and its shards have ${value}`);
    if (stream.status === 'completed' && counted.length !== all.length)
      this.breach(`${path} is completed without its last shard`);
  }

  /** In the calm, the next resync gives every stream a document, even if its events were lost. */
  override onMinute(): void {
    const {isResynced, objects, store, streams} = this.context;
    if (!isResynced || this.#isRegistered) return;
    this.#isRegistered = true;
    for (const name of streams.keys()) {
      const [, run = '', file = ''] = name.split('/');
      const parent = store.peek(paths.run(run));
      // An operator has to create the pool that its run.json names.
      const isClosed =
        parent?.stopped_at != null || parent?.expired_at || /there is no pool/.test(String(parent?.reason));
      if (!isClosed && objects.info(name) && store.peek(paths.stream(run, file.slice(7, 10))) === undefined)
        this.breach(`${name} has no document after a resync in the calm`);
    }
  }

  /** A dropped stream is complete at the end, unless its run was stopped. */
  override atTheEnd(): void {
    for (const object of this.context.streams.keys()) this.#checkComplete(object);
    for (const {id, data} of this.context.store.collection('runs')) this.#checkTotals(id, data);
  }

  /** The totals of a run that has ended equal those of its streams, also for shards stored after its end. */
  #checkTotals(run: string, document: Document): void {
    // Nothing follows the late shards of a run that ended long ago.
    if (this.context.aged.has(run) && document.status !== 'active') return;
    const streams = this.context.store.collection(paths.streams(run));
    for (const field of TOTALS) {
      const sum = streams.reduce((total, {data}) => total + Number(data[field]), 0);
      if (document[field] !== sum)
        this.breach(
          `run ${run}, which is ${document.status}, has ${field} ${document[field]}, and its streams have ${sum}`,
        );
    }
  }

  #checkComplete(object: string): void {
    const {store} = this.context;
    const [, run = '', file = ''] = object.split('/');
    const document = store.peek(paths.run(run));
    if (document?.status === 'stopped' || document?.expired_at) return;
    const stream = store.peek(paths.stream(run, file.slice(7, 10)));
    if (stream === undefined && this.context.isTooLate(document, object)) return;
    const mixed = this.#mixedOf(run);
    const isStored = this.#hasSamples(run);
    if (document?.status !== (mixed.size > 0 || !isStored ? 'failed' : 'completed'))
      this.breach(`run ${run} is ${document?.status}: ${document?.reason}`);
    if (mixed.has(file.slice(7, 10))) return;
    if (stream?.status !== 'completed')
      this.breach(`${object} is ${stream?.status} at the end: ${stream?.last_error}`);
    const shards = planOf(this.context, object, stream?.crc32c).length;
    if (stream?.total_shards !== shards)
      this.breach(`${object} has ${stream?.total_shards} of ${shards} shards`);
    if (mixed.size === 0) this.#checkResult(run);
  }

  /** True if a sample of the run was accepted. A run without any has failed. */
  #hasSamples(run: string): boolean {
    return this.context.store
      .collection(paths.streams(run))
      .some(({data}) =>
        planOf(this.context, String(data.object), data.crc32c).some(plan => good(plan).length > 0),
      );
  }

  /**
   * The failed streams with shards of two contents. A hanging upload of the old content ended after a shard of the new content was
   * stored. An operator must move the shards of one content away.
   */
  #mixedOf(run: string): Set<string> {
    const {objects, store} = this.context;
    const failed = store.collection(paths.streams(run)).filter(({data}) => data.status === 'failed');
    const mixed = failed.filter(({data}) => {
      const shards = objects.list(shardPrefix(data));
      return new Set(shards.map(({metadata}) => metadata.stream_crc32c)).size > 1;
    });
    if (mixed.length > 0) this.context.see('a stream has shards of two contents');
    return new Set(mixed.map(({id}) => id));
  }

  /** The manifest agrees with the streams. No world writes metadata.json, so every stream counts as unread. */
  #checkResult(run: string): void {
    const {store, objects} = this.context;
    const streams = store.collection(paths.streams(run)).map(({data}) => data);
    const {result} = JSON.parse(objects.text(manifestObject(run)) ?? '{}');
    const samples = streams.reduce((sum, stream) => sum + Number(stream.total_samples_processed), 0);
    const found = [result?.streams, result?.samples, Object.keys(result?.unread ?? {}).length];
    if (found.join() !== [streams.length, samples, streams.length].join())
      this.breach(
        `the manifest of ${run} has ${found}, and the run has ${streams.length} streams with ${samples} samples`,
      );
  }
}
