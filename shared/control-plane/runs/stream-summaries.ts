import {hash} from 'node:crypto';
import {ObjectTooLarge, Rejected} from '../../contracts/errors.ts';
import {parseJson} from '../../contracts/messages/schemas.ts';
import {streamMetadata} from '../../contracts/spec/manifest.ts';
import {metadataObject, streamIndexOf} from '../../domain/names.ts';
import type {StreamSummary} from '../../domain/run/result.ts';
import type {Deps} from '../deps.ts';

/** Concurrent reads, and the largest metadata.json for them; together they bound the function's memory. */
const READS = 32;
const MANY_BYTES = 1024 * 1024;
/** Limit of a larger metadata.json, which is read alone. */
const ONE_BYTES = 64 * 1024 * 1024;
const MAX_REASON = 300;

/** `sha256`: of metadata.json; empty if it is missing or too large. */
export type Summary = (StreamSummary | {unread: string}) & {sha256: string};

/** Yields the summaries in the order of the streams. Reads several at once, and repeats a failed read once. */
export async function* summariesOf<S extends {stream: string}>(
  deps: Deps,
  run: string,
  streams: readonly S[],
  spec_hash: string,
): AsyncGenerator<[S, Summary]> {
  const read = ({stream}: S, max_bytes: number) => readSummary(deps, {run, stream}, spec_hash, max_bytes);
  const first = (stream: S) => read(stream, MANY_BYTES).catch(() => read(stream, MANY_BYTES));
  for await (const [stream, found] of inOrder(streams, READS, first)) {
    const summary = found === 'too large' ? await read(stream, ONE_BYTES) : found;
    yield [
      stream,
      summary === 'too large' ? {unread: `it has more than ${ONE_BYTES} bytes`, sha256: ''} : summary,
    ];
  }
}

async function readSummary(
  deps: Deps,
  {run, stream}: {run: string; stream: string},
  spec_hash: string,
  max_bytes: number,
): Promise<Summary | 'too large'> {
  let sha256 = '';
  try {
    const bytes = await deps.objects.read(metadataObject(run, stream), {max_bytes});
    if (bytes === undefined) return {unread: 'it is missing', sha256};
    sha256 = hash('sha256', bytes);
    const text = Buffer.from(bytes).toString('utf8');
    const summary = parseJson(streamMetadata, text, 'it');
    if (summary.run !== run || summary.worker_id !== streamIndexOf(stream) || summary.spec_hash !== spec_hash)
      return {unread: 'it belongs to another stream, run or spec', sha256};
    return {...summary, sha256};
  } catch (error) {
    if (error instanceof ObjectTooLarge) return 'too large';
    if (error instanceof Rejected) return {unread: error.message.slice(0, MAX_REASON).toWellFormed(), sha256};
    throw error;
  }
}

/** Calls `ask` for each item, `width` items at once, and yields the answers in the order of the items. */
async function* inOrder<T, A>(
  items: readonly T[],
  width: number,
  ask: (item: T) => Promise<A>,
): AsyncGenerator<[T, A]> {
  const asked: [T, Promise<A>][] = [];
  for (const item of items) {
    const answer = ask(item);
    // A failure is thrown when its answer is awaited. If nobody awaits it, it must not crash the process.
    answer.catch(() => {});
    asked.push([item, answer]);
    const first = asked.length === width ? asked.shift() : undefined;
    if (first) yield [first[0], await first[1]];
  }
  for (const [item, answer] of asked) yield [item, await answer];
}
