/** A run as screens show it: bounded reads, also for a run of 100,000 streams. */
import {runRecords, streamRecords, workerRecords} from '../../shared/control-plane/documents/documents.ts';
import {parseWork, paths} from '../../shared/domain/names.ts';
import type {Run} from '../../shared/domain/run/run.ts';
import type {Stream} from '../../shared/domain/stream/stream.ts';
import type {Worker} from '../../shared/domain/worker/worker.ts';
import type {Filter, Store} from '../../shared/ports.ts';

/** Streams that a screen shows by name. */
const MOST_STREAMS = 200;

export type RunState = {
  run: Run;
  /** Streams by name: every stream of a small run; of a large one those at work and those that failed. */
  streams: Stream[];
  /** TPUs of the run's pool with a node, those that work on the run, and those that come back to it. */
  tpus: Worker[];
  /** Leased streams by TPU: also those that `streams` leaves out. */
  work: Map<string, Stream>;
  /** Texts about documents that cannot be read. */
  invalid: string[];
};

/** Undefined where no run has the name, or where its document is invalid; `invalid` then says why. */
export async function readRun(
  store: Store,
  name: string,
): Promise<RunState | {run: undefined; invalid: string[]}> {
  const invalid: string[] = [];
  const note = ({message}: Error) => void invalid.push(message);
  const [run] = runRecords.parseAll(await found(store, name), note);
  if (!run) return {run: undefined, invalid};
  const count = run.streams_pending + run.streams_in_progress + run.streams_completed + run.streams_failed;
  const query = async (where: Filter[], limit?: number) =>
    streamRecords.parseAll(await store.query(paths.streams(name), {where, ...(limit ? {limit} : {})}), note);
  const by = (status: string) => query([{field: 'status', op: '==', value: status}], MOST_STREAMS);
  const streams =
    count <= MOST_STREAMS
      ? await query([], MOST_STREAMS)
      : [...(await by('in_progress')), ...(await by('failed'))];
  const workers = workerRecords.parseAll(await store.query('workers'), note);
  const tpus = workers.filter(worker => isShown(worker, run)).sort((a, b) => a.name.localeCompare(b.name));
  const work = new Map(streams.flatMap(stream => (stream.lease ? [[stream.lease.worker, stream]] : [])));
  return {run, streams: streams.sort(byNumber), tpus, work, invalid: [...new Set(invalid)]};
}

async function found(store: Store, name: string) {
  const data = await store.get(paths.run(name));
  return data ? [{path: paths.run(name), id: name, data}] : [];
}

function isShown(worker: Worker, run: Run): boolean {
  if (parseWork(worker.work)?.run === run.run || worker.charged_to === run.run)
    return worker.phase !== 'gone';
  return worker.pool === run.pool && worker.phase !== 'gone';
}

function byNumber(one: Stream, other: Stream): number {
  return one.worker_id - other.worker_id;
}

/** Number of streams of the run, as its document counts them. A run that was just dropped counts its documents. */
export function streamCount({run, streams}: RunState): number {
  const {streams_pending, streams_in_progress, streams_completed, streams_failed} = run;
  return Math.max(streams.length, streams_pending + streams_in_progress + streams_completed + streams_failed);
}
