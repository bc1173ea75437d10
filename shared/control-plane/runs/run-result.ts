/**
 * The end of a run: its streams are gone through page by page and folded into the `result` of its manifest. Where the fold has
 * come to is kept in a document, so that a large run ends in several ticks, and a tick that dies loses a page at most.
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
import type {Deps} from '../state/deps.ts';
import {skipIfInvalid, streamRecords} from '../state/documents.ts';
import {foldRecords} from '../state/history-documents.ts';
import {type Frozen, readManifest} from './run-manifest.ts';
import {summariesOf} from './stream-summaries.ts';

/** Streams between two places that a fold can go on from. */
const PAGE = 500;
const ATTEMPTS = 3;
/** Of what is kept of a fold; to be raised when that changes, so that a new release begins anew. */
const FORMAT = 1;

/** `unfinished`: a stream goes on. `later`: time is over, or another tick folds the run; so many streams are folded. */
export type Ending =
  | {kind: 'unfinished'}
  | {kind: 'later'; streams: number}
  | {kind: 'ended'; totals: StreamTotals; streams: number; broken: number};

/**
 * Registers streams that lie in the bucket without a document, behind `after` up to `last`. `isAny`: one of them has a document now.
 * `gone`: known streams without an object.
 */
export type RegisterUnknown = (
  run: string,
  after: string,
  last: string | undefined,
  known: ReadonlySet<string>,
) => Promise<{isAny: boolean; gone: ReadonlySet<string>}>;

/** How far a run is folded. */
type Fold = {
  /** The last stream that is folded; empty before the first. */
  after: string;
  /** The manifest's before the first stream was read: a newer word of another tick is not overwritten. */
  generation: string | null;
  totals: StreamTotals;
  /** Streams whose document cannot be read; they count as failed. */
  broken: number;
  result: ResultFold;
  /** `after` as the document has it. */
  kept: string;
};

/**
 * Goes through the streams of a run until one goes on, time is over or all are folded. Writes the result of a run that is complete
 * before that is said of the run, so a tick that dies in between leaves a run that is looked at again. Equal streams give equal bytes,
 * and a manifest that has them is left alone.
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
    `Failed to complete ${name}: it or its streams changed ${ATTEMPTS} times meanwhile; the next message tries again`,
  );
}

async function newFold(deps: Deps, run: string): Promise<Fold> {
  const {generation = null} = (await deps.objects.head(manifestObject(run))) ?? {};
  return {after: '', generation, totals: totalsOf([]), broken: 0, result: new ResultFold(), kept: ''};
}

/** The spec of a run that can be complete. The run's document says the same where the manifest is moved away or spoilt. */
async function frozenOf(deps: Deps, run: Run): Promise<Frozen | undefined> {
  const {spec, spec_hash, pool, priority, budget_usd, affinity, stream_offset} = run;
  if (!spec || !spec_hash || run.status === 'cancelled') return undefined;
  const found = await skipIfInvalid(deps.log, () => readManifest(deps, run.run));
  return found ?? {spec, spec_hash, placement: {pool, priority, budget_usd, affinity, stream_offset}};
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
    // A stream that has a document now is in this page when it is read again.
    const {isAny, gone} = isOpen(parent)
      ? await register(run, fold.after, last, known)
      : {isAny: false, gone: new Set<string>()};
    if (isAny) continue;
    const found = page.map(stored => readFacts(deps, run, stored));
    if (found.some(({status}) => status === 'pending' || status === 'in_progress')) return 'unfinished';
    const isFailed = fold.totals.streams_failed > 0 || found.some(({status}) => status === 'failed');
    const summaries =
      spec_hash === undefined || isFailed
        ? withoutSummaries(found)
        : summariesOf(deps, run, found, spec_hash);
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

type Found = StreamFacts & {object?: string; isBroken: boolean};

function readFacts(deps: Deps, run: string, {id, path, data}: Stored): Found {
  try {
    return {...streamRecords.parse(path, data), isBroken: false};
  } catch (error) {
    if (!(error instanceof Rejected)) throw error;
    deps.log('ERROR', error.message, {run});
    return {...NOTHING_STORED, stream: id, status: 'failed', last_error: error.message, isBroken: true};
  }
}

/** A place in the streams that another process can go on from. False when another tick has gone on meanwhile. */
async function keepFold(deps: Deps, run: string, fold: Fold): Promise<boolean> {
  const {after, generation, totals, broken, result} = fold;
  if (after === fold.kept) return true;
  const state = JSON.stringify({totals, broken, result: result.state()});
  const isKept = await deps.store.transaction(async tx => {
    const current = await tx.get(paths.fold(run));
    if ((current?.after ?? '') !== fold.kept) return false;
    const updated_at = iso(deps.now());
    foldRecords.set(tx, paths.fold(run), {format: FORMAT, after, generation, state, updated_at});
    return true;
  });
  if (isKept) fold.kept = after;
  return isKept;
}

async function readFold(deps: Deps, run: string): Promise<Fold | undefined> {
  const found = await deps.store.get(paths.fold(run));
  return found && foldIn(found);
}

/** None in a document of another release, or one that was edited: the run is folded from its first stream. */
function foldIn({format, after, generation, state}: Document): Fold | undefined {
  if (format !== FORMAT) return undefined;
  try {
    type Kept = {totals: StreamTotals; broken: number; result: FoldState};
    const {totals, broken, result}: Kept = JSON.parse(String(state));
    const kept = String(after);
    const known = generation === null ? null : String(generation);
    return {after: kept, kept, generation: known, totals, broken, result: new ResultFold(result)};
  } catch {
    return undefined;
  }
}

/** The run has ended, or is folded from its first stream again. */
export async function forgetFold(deps: Deps, run: string): Promise<void> {
  const path = paths.fold(run);
  if (await deps.store.get(path)) await deps.store.transaction(async tx => tx.delete(path));
}

/** False when the streams or the manifest have changed since they were read. */
async function writeResult(deps: Deps, run: string, frozen: Frozen, fold: Fold): Promise<boolean> {
  if (!(await isUnchanged(deps, run, fold.totals))) return false;
  const name = manifestObject(run);
  const bytes = Buffer.from(manifestText({run, ...frozen}, fold.result.result()));
  if (await isThere(deps, name, bytes)) return true;
  const as = {content_type: 'application/json'};
  const outcome =
    fold.generation === null
      ? await deps.objects.create(name, bytes, as)
      : await deps.objects.replace(name, fold.generation, bytes, as);
  return outcome === 'replaced' || outcome === 'created';
}

/** Whether the documents still add up to what was folded, perhaps some ticks ago. */
async function isUnchanged(deps: Deps, run: string, totals: StreamTotals): Promise<boolean> {
  const streams = paths.streams(run);
  const [count, sums] = await Promise.all([deps.store.count(streams), deps.store.sum(streams, SUMMED)]);
  return count === totals.streams_completed && SUMMED.every(field => sums[field] === totals[field]);
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

async function* withoutSummaries(streams: readonly Found[]): AsyncGenerator<[Found, undefined]> {
  for (const stream of streams) yield [stream, undefined];
}
