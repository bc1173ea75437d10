/** The end of a run: writes its result, then its status `completed` or `failed`. */
import {paths} from '../../domain/names.ts';
import type {Run} from '../../domain/run/run.ts';
import type {Deps} from '../deps.ts';
import {COMPLETED, FAILED, runRecords} from '../documents/documents.ts';
import {reopenRun} from '../documents/runs.ts';
import {totalsOf} from '../runs/count-streams.ts';
import {FINISHING, storeRunTotals} from '../runs/summarize-run.ts';
import {type Ending, type Fold, foldedStreams, foldPage} from './run-result.ts';

/**
 * Folds a page of the streams of a run that is over. If none is left, and the bucket has none without a document, the manifest gets the
 * result and the run ends.
 */
export async function finishRun(deps: Deps, run: Run, fold: Fold, until_ms: number): Promise<Ending> {
  const ending = await foldPage(deps, run, fold, until_ms);
  if (ending.kind === 'ended') {
    if (await storeRunTotals(deps, run, ending.totals, run)) await reopenChanged(deps, run.run, ending);
    return ending;
  }
  const folded = foldedStreams(ending.kind === 'later' ? ending.fold : fold);
  const {totals, streams} = await totalsOf(deps.store, run.run);
  const why = ending.kind === 'waits' ? `. ${ending.reason}` : '';
  const reason = `${FINISHING}: ${folded} of ${streams} streams are read${why}`;
  await storeRunTotals(deps, run, totals, run, {ending: reason});
  return ending;
}

/** Reopens the run if a stream changed while the run ended: a new stream was registered, or a failed stream was completed. */
async function reopenChanged(
  {store, now}: Deps,
  run: string,
  {totals}: Ending & {kind: 'ended'},
): Promise<void> {
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
