/**
 * The end of a run: folds its streams, page by page, into the `result` of its manifest. A document keeps the progress of the fold, so
 * several messages may share the work, and a failed message loses at most one page.
 */
import {ObjectTooLarge, Rejected} from '../../contracts/errors.ts';
import {manifestText} from '../../contracts/manifest.ts';
import {manifestObject, paths} from '../../domain/names.ts';
import {type FoldState, ResultFold} from '../../domain/run/result.ts';
import {
  addGone,
  addStream,
  isOpen,
  type Run,
  type StreamFacts,
  type StreamTotals,
  SUMMED,
  totalsOf,
} from '../../domain/run/run.ts';
import {NOTHING_STORED} from '../../domain/stream/checkpoint.ts';
import {iso} from '../../domain/time.ts';
import type {Document, Stored} from '../../ports.ts';
import type {Deps} from '../deps.ts';
import {skipIfInvalid, streamRecords} from '../documents/documents.ts';
import {foldRecords} from '../documents/history-documents.ts';
import {type Frozen, readManifest} from './run-manifest.ts';
import {summariesOf} from './stream-summaries.ts';

/** Streams of one page: a fold continues at the start of a page. */
const PAGE = 500;
const ATTEMPTS = 3;
/** Format of a stored fold. A release that changes the format raises the number, and folds again from the first stream. */
const FORMAT = 1;

/** Outcome of a fold. `broken`: streams with an invalid document. */
export type Ending =
  /** The run goes on: a stream is unfinished. */
  | {kind: 'unfinished'}
  /** Time is over, or another message folds the run. `streams`: folded so far. */
  | {kind: 'later'; streams: number}
  | {kind: 'ended'; totals: StreamTotals; streams: number; broken: number};

/**
 * Registers streams in the bucket without a document, behind `after` up to `last`. `isAny`: true if such a stream has a document now.
 * `gone`: known streams without an object.
 */
export type RegisterUnknown = (
  run: string,
  after: string,
  last: string | undefined,
  known: ReadonlySet<string>,
) => Promise<{isAny: boolean; gone: ReadonlySet<string>}>;

/** Progress of a fold. */
type Fold = {
  /** The last folded stream; empty before the first. */
  after: string;
  /** Generation of the manifest before the first stream was read: a newer manifest is not overwritten. */
  generation: string | null;
  totals: StreamTotals;
  /** Streams with an invalid document; they count as failed. */
  broken: number;
  result: ResultFold;
  /** `after` of the stored document: another value there means that another message has continued the fold. */
  stored_after: string;
};

/**
 * Folds the streams of a run until a stream is unfinished, time is over or all streams are folded. Writes the result before the run
 * ends, so a function that dies in between leaves an open run. Equal streams give equal bytes.
 */
export async function foldRun(
  deps: Deps,
  run: Run,
  until_ms: number,
  register: RegisterUnknown,
): Promise<Ending> {
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const fold = (await readFold(deps, run.run)) ?? (await newFold(deps, run.run));
    const frozen = await frozenOf(deps, run);
    const how = await foldPages(deps, run, frozen?.spec_hash, fold, {until_ms, register}).catch(
      async error => {
        await keepFold(deps, run.run, fold);
        throw error;
      },
    );
    const {totals, broken} = fold;
    const streams = totals.streams_completed + totals.streams_failed;
    if (how === 'unfinished') return {kind: how};
    if (how === 'later') return {kind: how, streams};
    const isComplete = frozen !== undefined && streams > 0 && totals.streams_failed === 0;
    if (!isComplete || (await writeResult(deps, run.run, frozen, fold)))
      return {kind: 'ended', totals, streams, broken};
    await forgetFold(deps, run.run);
  }
  const name = manifestObject(run.run);
  throw new Error(
    `Failed to complete ${name}: it or its streams changed ${ATTEMPTS} times; the next message tries again`,
  );
}

async function newFold(deps: Deps, run: string): Promise<Fold> {
  const {generation = null} = (await deps.objects.head(manifestObject(run))) ?? {};
  return {after: '', generation, totals: totalsOf([]), broken: 0, result: new ResultFold(), stored_after: ''};
}

/** The frozen spec of a run that can be complete. If the manifest is missing or invalid, the run's document has the same spec. */
async function frozenOf(deps: Deps, run: Run): Promise<Frozen | undefined> {
  const {spec, spec_hash, pool, priority, budget_usd, affinity, stream_offset} = run;
  const {allow_mixed_code, allow_cross_region, expire_days} = run;
  if (!spec || !spec_hash || run.status === 'cancelled') return undefined;
  const frozen = await skipIfInvalid(deps.log, () => readManifest(deps, run.run));
  const placement = {
    pool,
    priority,
    budget_usd,
    affinity,
    stream_offset,
    allow_mixed_code,
    allow_cross_region,
    expire_days,
  };
  return frozen ?? {spec, spec_hash, placement};
}

async function foldPages(
  deps: Deps,
  parent: Run,
  spec_hash: string | undefined,
  fold: Fold,
  {until_ms, register}: {until_ms: number; register: RegisterUnknown},
): Promise<'unfinished' | 'later' | 'ended'> {
  const {run} = parent;
  const isLate = () => deps.now() >= until_ms;
  while (!isLate()) {
    const after = fold.after === '' ? {} : {after: fold.after};
    const page = await deps.store.query(paths.streams(run), {...after, limit: PAGE});
    const isLast = page.length < PAGE;
    const known = new Set(page.map(({id}) => id));
    const last = isLast ? undefined : page.at(-1)?.id;
    // Reads the page again: it has the newly registered streams now.
    const {isAny, gone} = isOpen(parent)
      ? await register(run, fold.after, last, known)
      : {isAny: false, gone: new Set<string>()};
    if (isAny) continue;
    const facts = page.map(stored => readFacts(deps, run, stored));
    if (facts.some(({status}) => status === 'pending' || status === 'in_progress')) return 'unfinished';
    const isFailed = fold.totals.streams_failed > 0 || facts.some(({status}) => status === 'failed');
    const summaries =
      spec_hash === undefined || isFailed
        ? withoutSummaries(facts)
        : summariesOf(deps, run, facts, spec_hash);
    for await (const [stream, summary] of summaries) {
      addStream(fold.totals, stream);
      if (gone.has(stream.stream)) addGone(fold.totals, stream.object ?? stream.stream);
      if (stream.isBroken) fold.broken += 1;
      if (summary) fold.result.add(stream, summary);
      fold.after = stream.stream;
      if (isLate()) break;
    }
    const isWhole = fold.after === (page.at(-1)?.id ?? fold.after);
    if (isLast && isWhole) return 'ended';
    if (!(await keepFold(deps, run, fold))) return 'later';
  }
  return 'later';
}

type StreamToFold = StreamFacts & {object?: string; isBroken: boolean};

function readFacts(deps: Deps, run: string, {id, path, data}: Stored): StreamToFold {
  try {
    return {...streamRecords.parse(path, data), isBroken: false};
  } catch (error) {
    if (!(error instanceof Rejected)) throw error;
    deps.log('ERROR', error.message, {run});
    return {...NOTHING_STORED, stream: id, status: 'failed', last_error: error.message, isBroken: true};
  }
}

/** Stores the progress for the next message. Returns false if another message has continued the fold. */
async function keepFold(deps: Deps, run: string, fold: Fold): Promise<boolean> {
  const {after, generation, totals, broken, result} = fold;
  if (after === fold.stored_after) return true;
  const state = JSON.stringify({totals, broken, result: result.state()});
  const isKept = await deps.store.transaction(async tx => {
    const current = await tx.get(paths.fold(run));
    if ((current?.after ?? '') !== fold.stored_after) return false;
    const updated_at = iso(deps.now());
    foldRecords.set(tx, paths.fold(run), {format: FORMAT, after, generation, state, updated_at});
    return true;
  });
  if (isKept) fold.stored_after = after;
  return isKept;
}

async function readFold(deps: Deps, run: string): Promise<Fold | undefined> {
  const stored = await deps.store.get(paths.fold(run));
  return stored && foldIn(stored);
}

/** Parses a stored fold. Undefined for a document of another release or an edited document: the fold starts again. */
function foldIn({format, after, generation, state}: Document): Fold | undefined {
  if (format !== FORMAT) return undefined;
  try {
    type State = {totals: StreamTotals; broken: number; result: FoldState};
    const {totals, broken, result}: State = JSON.parse(String(state));
    const cursor = String(after);
    const known = generation === null ? null : String(generation);
    return {
      after: cursor,
      stored_after: cursor,
      generation: known,
      totals,
      broken,
      result: new ResultFold(result),
    };
  } catch {
    return undefined;
  }
}

/** Deletes the stored fold of a run that has ended, or is folded again from its first stream. */
export async function forgetFold(deps: Deps, run: string): Promise<void> {
  const path = paths.fold(run);
  if (await deps.store.get(path)) await deps.store.transaction(async tx => tx.delete(path));
}

/** Writes the result. Returns false if the streams or the manifest changed since they were read. */
async function writeResult(deps: Deps, run: string, frozen: Frozen, fold: Fold): Promise<boolean> {
  if (!(await isUnchanged(deps, run, fold.totals))) return false;
  const name = manifestObject(run);
  const bytes = Buffer.from(manifestText({run, ...frozen}, fold.result.result()));
  if (await isStored(deps, name, bytes)) return true;
  const as = {content_type: 'application/json'};
  const outcome =
    fold.generation === null
      ? await deps.objects.create(name, bytes, as)
      : await deps.objects.replace(name, fold.generation, bytes, as);
  return outcome === 'replaced' || outcome === 'created';
}

/** True if the sums of the documents still equal the folded totals. */
async function isUnchanged(deps: Deps, run: string, totals: StreamTotals): Promise<boolean> {
  const streams = paths.streams(run);
  const [count, sums] = await Promise.all([deps.store.count(streams), deps.store.sum(streams, SUMMED)]);
  return count === totals.streams_completed && SUMMED.every(field => sums[field] === totals[field]);
}

async function isStored(deps: Deps, name: string, bytes: Buffer): Promise<boolean> {
  try {
    const stored = await deps.objects.read(name, {max_bytes: bytes.length});
    return stored !== undefined && bytes.equals(stored);
  } catch (error) {
    if (!(error instanceof ObjectTooLarge)) throw error;
    return false;
  }
}

async function* withoutSummaries(
  streams: readonly StreamToFold[],
): AsyncGenerator<[StreamToFold, undefined]> {
  for (const stream of streams) yield [stream, undefined];
}
