/**
 * The end of a run: folds its streams, page by page, into the `result` of its manifest. The task keeps the fold as its cursor, so several
 * messages may share the work, and a failed message loses at most one page.
 */
import {hash} from 'node:crypto';
import {ObjectTooLarge} from '../../contracts/errors.ts';
import {MAX_MANIFEST_BYTES, manifestText} from '../../contracts/spec/manifest.ts';
import {manifestObject, modelLockObject, paths} from '../../domain/names.ts';
import {pick} from '../../domain/records/field.ts';
import {isOpen, type Run, type StreamTotals} from '../../domain/records/run.ts';
import {runSettings} from '../../domain/records/spec-keys.ts';
import {isUnfinished, type Stream} from '../../domain/records/stream.ts';
import {type FoldState, ResultFold} from '../../domain/run/result.ts';
import {addGone, addStream, SUMMED, totalsOf} from '../../domain/run/summarize.ts';
import {contradictionEvent} from '../../domain/timeline.ts';
import type {Deps} from '../deps.ts';
import {COMPLETED, FAILED, runRecords, skipIfInvalid, streamRecords} from '../documents/documents.ts';
import {recordEventNow} from '../documents/event-log.ts';
import {reopenRun} from '../documents/runs.ts';
import {countTotals} from '../runs/count-streams.ts';
import {type Frozen, readManifest} from '../runs/run-manifest.ts';
import {summariesOf} from '../runs/stream-summaries.ts';
import {FINISHING, storeRunTotals} from '../runs/summarize-run.ts';
import {registerUnknown} from '../streams/resync-streams.ts';

/**
 * Folds a page of the streams of a run that is over. If none is left, and the bucket has none without a document, the result is written into
 * the manifest and the run ends.
 */
export async function finishRun(deps: Deps, run: Run, fold: Fold, until_ms: number): Promise<Ending> {
  const ending = await foldPage(deps, run, fold, until_ms);
  if (ending.kind === 'ended') {
    if (await storeRunTotals(deps, run, ending.totals, run)) await reopenChanged(deps, run.run, ending);
    return ending;
  }
  const folded = foldedStreams(ending.kind === 'later' ? ending.fold : fold);
  const {totals, streams} = await countTotals(deps.store, run.run);
  const why = ending.kind === 'waits' ? `. ${ending.reason}` : '';
  const reason = `${FINISHING}: ${folded} of ${streams} streams are read${why}`;
  await storeRunTotals(deps, run, totals, run, {ending: reason});
  return ending;
}

/** Reopens the run if a stream changed while the run ended: a new stream was registered, or a failed stream was completed. */
async function reopenChanged({store, now}: Deps, run: string, {totals}: Ending & {kind: 'ended'}) {
  const path = paths.streams(run);
  const isSame =
    (await store.count(path)) === foldedStreams({totals}) &&
    (await store.count(path, [COMPLETED])) === totals.streams_completed &&
    (await store.count(path, [FAILED])) === totals.streams_failed;
  if (isSame) return;
  await store.transaction(async tx => {
    const current = await runRecords.get(tx, run);
    reopenRun(tx, current, 'a stream changed while it ended', now());
  });
}

const PAGE = 500;

export type Ending =
  /** The run continues, because a stream is unfinished. */
  | {kind: 'unfinished'}
  /** The document of a stream is invalid. */
  | {kind: 'waits'; reason: string}
  | {kind: 'later'; fold: Fold}
  | {kind: 'ended'; totals: StreamTotals};

/** Progress of a fold, as JSON keeps it. */
export type Fold = {
  /** The last folded stream; empty before the first. */
  after: string;
  /** Generation of the manifest before the first stream was read; a newer manifest is not overwritten. */
  generation: string | null;
  totals: StreamTotals;
  result: FoldState;
};

export async function newFold(deps: Deps, run: string): Promise<Fold> {
  const {generation = null} = (await deps.objects.head(manifestObject(run))) ?? {};
  return {after: '', generation, totals: totalsOf([]), result: new ResultFold().state()};
}

export function foldedStreams({totals}: Pick<Fold, 'totals'>): number {
  return totals.streams_completed + totals.streams_failed;
}

/**
 * Folds a page of streams, or a part of it when time is up. The result is written before the run ends, so a function that dies in between
 * leaves an open run. Equal streams give equal bytes.
 */
export async function foldPage(deps: Deps, run: Run, fold: Fold, until_ms: number): Promise<Ending> {
  const after = fold.after === '' ? {} : {after: fold.after};
  const page = await deps.store.query(paths.streams(run.run), {...after, limit: PAGE});
  const isLast = page.length < PAGE;
  const known = new Set(page.map(({id}) => id));
  const last = isLast ? undefined : page.at(-1)?.id;
  const {isAny, gone} = isOpen(run)
    ? await registerUnknown(deps, run, fold.after, last, known)
    : {isAny: false, gone: new Set<string>()};
  // The next call reads the page again, including the newly registered streams.
  if (isAny) return {kind: 'later', fold};
  let reason: string | undefined;
  const streams = streamRecords.parseAll(page, error => {
    reason ??= error.message;
  });
  if (streams.some(isUnfinished)) return {kind: 'unfinished'};
  if (reason !== undefined) return {kind: 'waits', reason};
  const frozen = await frozenOf(deps, run);
  const totals = {...fold.totals};
  const result = new ResultFold(fold.result);
  const isFailed = totals.streams_failed > 0 || streams.some(({status}) => status === 'failed');
  const summaries =
    frozen === undefined || isFailed
      ? withoutSummaries(streams)
      : summariesOf(deps, run.run, streams, frozen.spec_hash);
  let folded = fold.after;
  try {
    for await (const [stream, summary] of summaries) {
      addStream(totals, stream);
      if (gone.has(stream.stream)) addGone(totals, stream.object);
      if (summary) result.add(stream, summary);
      folded = stream.stream;
      if (deps.now() >= until_ms) break;
    }
  } catch (error) {
    // The streams before the failed read are folded already.
    if (folded === fold.after) throw error;
  }
  const next = {...fold, after: folded, totals, result: result.state()};
  if (!isLast || folded !== (page.at(-1)?.id ?? folded)) return {kind: 'later', fold: next};
  const isComplete = frozen !== undefined && foldedStreams(next) > 0 && totals.streams_failed === 0;
  if (!isComplete) return {kind: 'ended', totals};
  // An earlier stream had failed and was left out of the result, and was completed since.
  const isWhole = next.result.result.streams === foldedStreams(next);
  if (isWhole && (await writeResult(deps, run.run, frozen, next))) return {kind: 'ended', totals};
  return {kind: 'later', fold: await newFold(deps, run.run)};
}

/**
 * The frozen spec of a run that can be complete. The run's document has the same spec, and is used if the manifest is missing, invalid or has
 * another spec: the streams were made by the document.
 */
async function frozenOf(deps: Deps, run: Run): Promise<Frozen | undefined> {
  const {spec, spec_hash} = run;
  if (!spec || !spec_hash || run.status === 'stopped') return undefined;
  const frozen = await skipIfInvalid(deps.log, () => readManifest(deps, run.run));
  if (frozen && frozen.spec_hash !== spec_hash) {
    const found = `spec ${frozen.spec_hash}`;
    const contradiction = {object: manifestObject(run.run), found, made: `spec ${spec_hash}`};
    await recordEventNow(deps, contradictionEvent(contradiction, 'the control plane', {run: run.run}));
  }
  return frozen?.spec_hash === spec_hash ? frozen : {spec, spec_hash, placement: pick(runSettings, run)};
}

/** Writes the result. Returns false if the streams or the manifest changed since they were read. */
async function writeResult(deps: Deps, run: string, frozen: Frozen, fold: Fold): Promise<boolean> {
  if (!(await isUnchanged(deps, run, fold.totals))) return false;
  const name = manifestObject(run);
  const model = await readAtMost(deps, modelLockObject(run), MAX_MANIFEST_BYTES);
  const result = new ResultFold(fold.result).result();
  const bytes = Buffer.from(manifestText({run, ...frozen}, result, model && hash('sha256', model)));
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
  const stored = await readAtMost(deps, name, bytes.length);
  return stored !== undefined && bytes.equals(stored);
}

/** The bytes of an object; undefined if it is missing or larger. */
async function readAtMost({objects}: Deps, name: string, max_bytes: number): Promise<Uint8Array | undefined> {
  try {
    return await objects.read(name, {max_bytes});
  } catch (error) {
    if (!(error instanceof ObjectTooLarge)) throw error;
    return undefined;
  }
}

async function* withoutSummaries(streams: readonly Stream[]): AsyncGenerator<[Stream, undefined]> {
  for (const stream of streams) yield [stream, undefined];
}
