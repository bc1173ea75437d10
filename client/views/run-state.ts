/** A run as screens and pages show it: bounded reads, also for a run of 100,000 streams. */
import {z} from 'zod';
import {Rejected} from '../../shared/contracts/errors.ts';
import {parseJson} from '../../shared/contracts/messages/schemas.ts';
import {runRecords, streamRecords, workerRecords} from '../../shared/control-plane/documents/documents.ts';
import {manifestObject, parseWork, paths} from '../../shared/domain/names.ts';
import type {Run} from '../../shared/domain/records/run.ts';
import type {Stream} from '../../shared/domain/records/stream.ts';
import type {Worker} from '../../shared/domain/records/worker.ts';
import {MAX_MANIFEST_BYTES, type RunResult, runResult} from '../../shared/domain/run/result.ts';
import type {Filter, Objects, Store} from '../../shared/ports/ports.ts';
import {CliError} from '../text/errors.ts';
import {complain} from '../text/output.ts';

/** Streams that a screen shows by name. */
const MOST_STREAMS = 200;

export type RunState = {
  run: Run;
  /** Streams by name: every stream of a small run; of a large one those at work and those that failed. */
  streams: Stream[];
  /** Workers of the deployment that are not gone. */
  workers: Worker[];
  /** TPUs of the run's pool with a node, those that work on the run, and those that come back to it. */
  tpus: Worker[];
  /** Leased streams by TPU, including those that `streams` leaves out. */
  work: Map<string, Stream>;
  /** Texts about documents that cannot be read. */
  invalid: string[];
};

/**
 * Undefined where no run has the name, or where its document is invalid; `invalid` then says why. `most`: a run with more streams shows
 * those at work and those that failed alone.
 */
export async function readRun(
  store: Store,
  name: string,
  most = MOST_STREAMS,
): Promise<RunState | {run: undefined; invalid: string[]}> {
  const invalid: string[] = [];
  const note = ({message}: Error) => void invalid.push(message);
  const data = await store.get(paths.run(name));
  const [run] = runRecords.parseAll(data ? [{path: paths.run(name), id: name, data}] : [], note);
  if (!run) return {run: undefined, invalid};
  const query = async (where: Filter[], limit?: number) =>
    streamRecords.parseAll(await store.query(paths.streams(name), {where, ...(limit ? {limit} : {})}), note);
  const by = (status: string) => query([{field: 'status', op: '==', value: status}], MOST_STREAMS);
  const streams =
    streamsOf(run) <= most
      ? await query([], Number.isFinite(most) ? most : undefined)
      : [...(await by('in_progress')), ...(await by('failed'))];
  const all = workerRecords.parseAll(await store.query('workers'), note);
  const workers = all.filter(({phase}) => phase !== 'gone');
  const tpus = workers.filter(worker => isShown(worker, run)).sort((a, b) => a.name.localeCompare(b.name));
  const work = new Map(streams.flatMap(stream => (stream.lease ? [[stream.lease.worker, stream]] : [])));
  return {
    run,
    streams: streams.sort((one, other) => one.worker_id - other.worker_id),
    workers,
    tpus,
    work,
    invalid: [...new Set(invalid)],
  };
}

function isShown({work, charged_to, pool}: Worker, run: Run): boolean {
  return parseWork(work)?.run === run.run || charged_to === run.run || pool === run.pool;
}

/** Number of streams of the run, as its document counts them. A run that was just dropped counts its documents. */
export function streamCount({run, streams}: Pick<RunState, 'run' | 'streams'>): number {
  return Math.max(streams.length, streamsOf(run));
}

export function streamsOf(run: Run): number {
  return run.streams_pending + run.streams_in_progress + run.streams_completed + run.streams_failed;
}

/** The last point of the history: later changes of the document are late costs. Null for a run that is open. */
export function endOf({status, history, created_at, updated_at}: Run): string | null {
  if (status === 'active' || status === 'paused') return null;
  const last_s = history?.at_s.at(-1);
  return last_s === undefined ? updated_at : new Date(Date.parse(created_at) + last_s * 1000).toISOString();
}

/** Seconds from the start to the end; null for a run that is open. */
export function tookSeconds(run: Run): number | null {
  const end = endOf(run);
  return end === null ? null : (Date.parse(end) - Date.parse(run.created_at)) / 1000;
}

/** A run with all of its streams. Throws `CliError` for a run with an invalid document. Other invalid documents are named and left out. */
export async function viewRun(store: Store, name: string): Promise<RunState | undefined> {
  const state = await readRun(store, name, Number.POSITIVE_INFINITY);
  if (!state.run) {
    if (state.invalid[0] !== undefined) throw new CliError(state.invalid[0]);
    return undefined;
  }
  state.invalid.forEach(complain);
  return state;
}

const completedManifest = z.object({schema: z.literal('gleaner/1'), result: runResult});

/** Result in the manifest of a completed run; null for a manifest without a result. */
export async function readResult(objects: Objects, run: string): Promise<RunResult | null> {
  const name = manifestObject(run);
  const bytes = await objects.read(name, {max_bytes: MAX_MANIFEST_BYTES});
  try {
    return parseJson(completedManifest, Buffer.from(bytes ?? '').toString('utf8'), name).result;
  } catch (error) {
    if (!(error instanceof Rejected)) throw error;
    return null;
  }
}
