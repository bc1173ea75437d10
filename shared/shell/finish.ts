import {manifestObject, metadataObject, paths, workerIdOf} from '../core/names.ts';
import {ResultFold, type RunResult, type StreamSummary} from '../core/result.ts';
import type {Run} from '../core/run.ts';
import type {Stream} from '../core/stream.ts';
import {ObjectTooLarge, Rejected} from '../errors.ts';
import {manifestText, streamMetadata} from '../manifest.ts';
import {parseJson} from '../schemas.ts';
import type {Deps} from './deps.ts';
import {readManifest, readText} from './freeze.ts';
import {streamRecords, unlessBroken} from './records.ts';

/** Reads under way at once, and the largest metadata.json that is one of them: together they bound the function's memory. */
const READS = 32;
const MANY_BYTES = 1024 * 1024;
/** A larger one is read when nothing else is. */
const ONE_BYTES = 64 * 1024 * 1024;
const ATTEMPTS = 3;
const MAX_REASON = 300;

/**
 * Brings the result of a run whose streams are all complete into its manifest; false when a stream is not complete after all.
 * What is there already is left as it is, and nobody's newer word is overwritten: the generation is taken before the streams
 * are read. It comes before the run is called completed, so a look that dies in between leaves a run that is looked at again.
 */
export async function writeResult(deps: Deps, run: Run): Promise<boolean> {
  const name = manifestObject(run.run);
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const found = await deps.objects.head(name);
    const streams = await completeStreams(deps, run);
    if (!streams) return false;
    const frozen = (await unlessBroken(deps, () => readManifest(deps, run.run))) ?? frozenOf(run);
    const result = await foldStreams(deps, streams, frozen.spec_hash);
    const bytes = Buffer.from(manifestText({run: run.run, ...frozen}, result));
    if (await isThere(deps, name, bytes)) return true;
    const as = {content_type: 'application/json'};
    const outcome = found
      ? await deps.objects.replace(name, found.generation, bytes, as)
      : await deps.objects.create(name, bytes, as);
    if (outcome === 'replaced' || outcome === 'created') return true;
  }
  throw new Error(
    `Failed to complete ${name}: it changed ${ATTEMPTS} times meanwhile; the next tick tries again`,
  );
}

/** For a manifest that somebody moved away or spoilt: the run's document says the same. */
function frozenOf({run, spec, spec_hash, ...of}: Run) {
  if (!spec || !spec_hash) throw new Error(`Run ${run} has streams, but no spec`);
  const {pool, priority, budget_usd, affinity, stream_offset} = of;
  return {spec, spec_hash, placement: {pool, priority, budget_usd, affinity, stream_offset}};
}

async function completeStreams(deps: Deps, {run}: Run): Promise<Stream[] | undefined> {
  const stored = await deps.store.query(paths.streams(run));
  const streams = streamRecords.parseAll(stored, error => deps.log('ERROR', error.message, {run}));
  const isComplete = streams.length === stored.length && streams.every(({status}) => status === 'completed');
  return isComplete ? streams.sort((a, b) => a.worker_id - b.worker_id) : undefined;
}

async function isThere(deps: Deps, name: string, bytes: Buffer): Promise<boolean> {
  try {
    const stored = await deps.objects.read(name, {max_bytes: bytes.length});
    return stored !== undefined && bytes.equals(stored);
  } catch (error) {
    if (!(error instanceof ObjectTooLarge)) throw error;
    return false;
  }
}

async function foldStreams(deps: Deps, streams: readonly Stream[], spec_hash: string): Promise<RunResult> {
  const fold = new ResultFold();
  const many = (stream: Stream) => readSummary(deps, stream, spec_hash, MANY_BYTES);
  for await (const [stream, found] of inOrder(streams, READS, many)) {
    const summary = found === 'too large' ? await readSummary(deps, stream, spec_hash, ONE_BYTES) : found;
    fold.add(stream, summary === 'too large' ? {unread: `it has more than ${ONE_BYTES} bytes`} : summary);
  }
  return fold.result();
}

async function readSummary(
  deps: Deps,
  {run, stream}: Stream,
  spec_hash: string,
  max_bytes: number,
): Promise<StreamSummary | {unread: string} | 'too large'> {
  try {
    const text = await readText(deps, metadataObject(run, stream), max_bytes);
    if (text === undefined) return {unread: 'it is not there'};
    const summary = parseJson(streamMetadata, text, 'it');
    if (summary.run !== run || summary.worker_id !== workerIdOf(stream) || summary.spec_hash !== spec_hash)
      return {unread: 'it is of another stream, run or spec'};
    return summary;
  } catch (error) {
    if (error instanceof ObjectTooLarge) return 'too large';
    if (error instanceof Rejected) return {unread: error.message.slice(0, MAX_REASON).toWellFormed()};
    throw error;
  }
}

/** Asks about each item, `width` of them at a time, and gives the answers in the order of the items. */
async function* inOrder<T, A>(
  items: readonly T[],
  width: number,
  ask: (item: T) => Promise<A>,
): AsyncGenerator<[T, A]> {
  const asked: [T, Promise<A>][] = [];
  for (const item of items) {
    const answer = ask(item);
    // Whoever waits for it hears of a failure; one that nobody waits for any more is no crash.
    answer.catch(() => {});
    asked.push([item, answer]);
    const first = asked.length === width ? asked.shift() : undefined;
    if (first) yield [first[0], await first[1]];
  }
  for (const [item, answer] of asked) yield [item, await answer];
}
