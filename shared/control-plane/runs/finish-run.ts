/** The end of a run: writes its result, then its status `completed` or `failed`. */
import {paths} from '../../domain/names.ts';
import type {Run} from '../../domain/run/run.ts';
import type {Deps} from '../deps.ts';
import {FAILED, runRecords} from '../documents/documents.ts';
import {requestTotals} from '../documents/request-totals.ts';
import {reopenRun} from '../documents/runs.ts';
import {isAnyUnfinished, totalsOf} from './count-streams.ts';
import {type Ending, foldRun, forgetFold, type RegisterUnknown} from './run-result.ts';
import {FINISHING, storeRunTotals} from './summarize-run.ts';

/**
 * Reads the streams of a run that is over, page by page. If none is left, and the bucket has none without a document, the manifest
 * gets the result and the run ends. `later`: time was over first; the next call continues the stored fold.
 */
export async function finishRun(
  deps: Deps,
  run: Run,
  {until_ms, register}: {until_ms: number; register: RegisterUnknown},
): Promise<Ending['kind']> {
  const ending = await foldRun(deps, run, until_ms, register);
  if (ending.kind === 'ended') {
    if (await storeRunTotals(deps, run, ending.totals, run)) {
      await reopenChanged(deps, run.run, ending);
      await requestTotals(deps, run.run);
    }
    await forgetFold(deps, run.run);
    return ending.kind;
  }
  const folded = ending.kind === 'later' ? ending.streams : 0;
  const {totals, streams} = await totalsOf(deps.store, run.run);
  await storeRunTotals(deps, run, totals, run, `${FINISHING}: ${folded} of ${streams} streams are read`);
  return ending.kind;
}

/** Reopens the run if a stream changed while the run ended: a new stream was registered, or a failed stream was completed. */
async function reopenChanged(
  {store, now}: Deps,
  run: string,
  {totals, streams, broken}: Ending & {kind: 'ended'},
): Promise<void> {
  const path = paths.streams(run);
  const isSame =
    !(await isAnyUnfinished(store, run)) &&
    (await store.count(path)) === streams &&
    (await store.count(path, [FAILED])) >= totals.streams_failed - broken;
  if (isSame) return;
  await store.transaction(async tx => {
    const current = await runRecords.get(tx, run);
    reopenRun(tx, current, 'a stream changed while it ended', now());
  });
}
