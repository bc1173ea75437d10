/** Names of paths, ids and labels, with one builder and one parser each. `parse(build(x))` equals `x`. */

export const RUN = /^[a-z][a-z0-9-]{0,38}$/;
const MOST_RUN_CHARS = 39;
const INDEX = /^(?:\d{3}|[1-9]\d{3,8})$/;
const SHARD = /^shard_(\d{4}|[1-9]\d{4,8})\.(safetensors|safetensors\.zst|pkl\.gz)$/;
/** `us-central1-a`, or an AI zone such as `us-central1-ai1a`: always three parts, so a pool name may have dashes. */
const ZONE_TEXT = '[a-z]+-[a-z]+\\d+-(?:ai\\d+)?[a-z]';
export const ZONE = new RegExp(`^${ZONE_TEXT}$`);
export const WORKER = new RegExp(`^([a-z][a-z0-9-]{0,30})-(${ZONE_TEXT})-(0|[1-9]\\d{0,4})$`);

/** Longest name of a node that Cloud TPU accepts. */
export const MOST_NAME_CHARS = 63;

/** The run of a path without a run, such as `datasets/stream_000.jsonl`. */
export const DEFAULT_RUN = 'default';

export type ShardFormat = 'safetensors' | 'safetensors.zst' | 'pkl.gz';

export type DatasetObject =
  | {kind: 'stream'; run: string; stream: string; gzip: boolean}
  | {kind: 'spec'; run: string}
  | {kind: 'unknown'; reason: string};

export type OutputObject = {kind: 'shard'; run: string; stream: string; shard: number; format: ShardFormat};

export type Slot = {pool: string; zone: string; slot: number};

/** Id of a job and of a command on hosts. It becomes part of object names and of document ids, where Firestore reserves `__x__`. */
export const JOB = /^(?!__.*__$)[A-Za-z0-9_-]{1,100}$/;
const JOB_WORK = 'job:';

/** The next name of a run: `my-run`, `my-run-2`, `my-run-3`. */
export function nextRunName(run: string): string {
  const [, base = run, number = '1'] = /^(.*?)(?:-([1-9]\d{0,5}))?$/.exec(run) ?? [];
  const end = `-${Number(number) + 1}`;
  return `${base.slice(0, MOST_RUN_CHARS - end.length)}${end}`;
}

export const isRunId = (text: string) => RUN.test(text);
export const isZone = (text: string) => ZONE.test(text);
/** Region of a zone: `us-central1-ai1a` -> `us-central1`. */
export const regionOf = (zone: string) => zone.slice(0, zone.lastIndexOf('-'));

export function parseWork(work: string | null): {run: string; stream: string} | undefined {
  const [run, stream] = work?.split('/') ?? [];
  return run && stream ? {run, stream} : undefined;
}

/** The work of a worker that runs a job: `job:ID`. No run id has a colon. */
export const jobWork = (job: string) => `${JOB_WORK}${job}`;

/** The work of a worker with this lease: `my-run/007` or `job:ID`. */
export function leasedWork(lease: {run: string; stream: string} | {job: string}): string {
  return 'job' in lease ? jobWork(lease.job) : `${lease.run}/${lease.stream}`;
}

export function parseJobWork(work: string | null): string | undefined {
  return work?.startsWith(JOB_WORK) ? work.slice(JOB_WORK.length) : undefined;
}

/** Name of a stream in its run, and its document id: `7` -> `007`. */
export const streamId = (worker_id: number) => String(worker_id).padStart(3, '0');
/** Index of a stream: `007` -> `7`. */
export const streamIndexOf = (stream: string) => Number(stream);
const runSegment = (run: string) => (run === DEFAULT_RUN ? '' : `${run}/`);

export function streamObject(run: string, stream: string, gzip = false): string {
  return `datasets/${runSegment(run)}stream_${stream}.jsonl${gzip ? '.gz' : ''}`;
}

export const specObject = (run: string) => `datasets/${runSegment(run)}run.json`;
/** Prefix of every stream of a run. Streams of other runs share the prefix of the default run. */
export const datasetPrefix = (run: string) => `datasets/${runSegment(run)}`;
/** Prefix of every stream of a run, and of no object of another run. */
export const streamPrefix = (run: string) => `${datasetPrefix(run)}stream_`;
/** Copy of a final stop, so that a run does not restart after its document was lost. */
export const stopObject = (run: string) => `system/stops/${run}.json`;
/** Copy of the spending of a month, named as in `2026-11`. */
export const monthObject = (month: string) => `system/spending/${month}.json`;
/** Folder of the output of a run. That of the default run also has the folders of all other runs. */
export const activationsFolder = (run: string) => `activations/${runSegment(run)}`;
export const manifestObject = (run: string) => `${activationsFolder(run)}manifest.json`;
/** Hashes of the model's files, written by the first worker of the run that loads the model. */
export const modelLockObject = (run: string) => `activations/${runSegment(run)}model.json`;
/** Prefix of the folders of every stream of a run, and of no other run. */
export const outputsPrefix = (run: string) => `activations/${runSegment(run)}tpu_`;

/** Prefixes of all objects of a run, and of no other run. The data set comes first: a stream that is left could register its run again. */
export function prefixesOf(run: string): string[] {
  if (run !== DEFAULT_RUN) return ['datasets', 'activations', 'partials'].map(folder => `${folder}/${run}/`);
  return [
    ...[streamPrefix(run), specObject(run)],
    ...[outputsPrefix(run), manifestObject(run), modelLockObject(run)],
    'partials/tpu_',
  ];
}

export function outputPrefix(run: string, stream: string): string {
  return `activations/${runSegment(run)}tpu_${streamIndexOf(stream)}/`;
}

export const metadataObject = (run: string, stream: string) => `${outputPrefix(run, stream)}metadata.json`;

/** Folder for computed batches of an unfinished shard, from workers that were preempted with notice. */
export function partialsPrefix(run: string, stream: string): string {
  return `partials/${runSegment(run)}tpu_${streamIndexOf(stream)}/`;
}

/** Document id of a shard, and the number in its object name: `1` -> `0001`. */
const shardId = (shard: number) => String(shard).padStart(4, '0');

export function shardObject(run: string, stream: string, shard: number, format: ShardFormat): string {
  return `${outputPrefix(run, stream)}shard_${shardId(shard)}.${format}`;
}

/** Name to which an object is moved that was not the shard its name claims. */
export const setAsideObject = (object: string, generation: string) => `set-aside/${object}/${generation}`;

/**
 * Prefix and start of a listing of a stream's folder that includes every shard from `shard` on.
 * Five-digit names sort among four-digit names, so from shard 1000 on the listing starts at `shard_1`.
 */
export function shardListingStart(run: string, stream: string, shard: number): string {
  return `${outputPrefix(run, stream)}shard_${shard < 1000 ? shardId(shard) : '1'}`;
}

const unknown = (reason: string): DatasetObject => ({kind: 'unknown', reason});

/** Parses the name of an object under `datasets/`. An unknown name returns the reason, for the person who chose it. */
export function parseDatasetObject(name: string): DatasetObject {
  const parts = name.split('/');
  const file = parts.at(-1) ?? '';
  if (parts[0] !== 'datasets' || parts.length < 2 || parts.length > 3)
    return unknown('streams are named datasets/RUN/stream_007.jsonl or datasets/stream_007.jsonl');
  const run = parts.length === 3 ? (parts[1] ?? '') : DEFAULT_RUN;
  if (parts.length === 3 && run === DEFAULT_RUN)
    return unknown(`streams of the run "${DEFAULT_RUN}" lie directly under datasets/`);
  if (!isRunId(run))
    return unknown(
      `"${run}" is no run id: use 1 to 39 lower-case letters, digits and dashes, starting with a letter`,
    );
  if (file === 'run.json') return {kind: 'spec', run};
  const match = /^stream_(\d+)\.jsonl(\.gz)?$/.exec(file);
  if (!match?.[1] || !INDEX.test(match[1]))
    return unknown(
      `"${file}" is no stream: name it stream_007.jsonl or stream_007.jsonl.gz, with three digits or more and no further zeros`,
    );
  return {kind: 'stream', run, stream: match[1], gzip: match[2] !== undefined};
}

/** Parses the name of a shard under `activations/`. Undefined for metadata, rejects, manifests and foreign objects. */
export function parseOutputObject(name: string): OutputObject | undefined {
  const parts = name.split('/');
  if (parts[0] !== 'activations' || parts.length < 3 || parts.length > 4) return undefined;
  const run = parts.length === 4 ? (parts[1] ?? '') : DEFAULT_RUN;
  if (!isRunId(run) || (parts.length === 4 && run === DEFAULT_RUN)) return undefined;
  const worker = /^tpu_(0|[1-9]\d{0,8})$/.exec(parts.at(-2) ?? '');
  const file = SHARD.exec(parts.at(-1) ?? '');
  if (!worker?.[1] || !file?.[1] || Number(file[1]) < 1) return undefined;
  return {
    kind: 'shard',
    run,
    stream: streamId(Number(worker[1])),
    shard: Number(file[1]),
    format: file[2] as ShardFormat,
  };
}

/** Name of a node, its worker and its document: `tpu-us-central1-a-0`. */
export const workerName = ({pool, zone, slot}: Slot) => `${pool}-${zone}-${slot}`;

export function parseWorkerName(name: string): Slot | undefined {
  const match = WORKER.exec(name);
  if (!match?.[1] || !match[2] || !match[3] || name.length > MOST_NAME_CHARS) return undefined;
  return {pool: match[1], zone: match[2], slot: Number(match[3])};
}

/** Log of the agent of one incarnation on a host, in the bucket of logs. */
export function logObject(worker: string, incarnation: number, host = 0): string {
  return `${logsPrefix(worker, incarnation)}${host === 0 ? '' : `${host}.`}log`;
}

/** Start of the names of the logs of one incarnation, and of no other. */
export const logsPrefix = (worker: string, incarnation: number) => `logs/${worker}/${incarnation}.`;
export const jobsFolder = (job: string) => `jobs/${job}/`;
/** Folder of one attempt of a job: its output, its artifacts and a long result. */
export const jobFolder = (job: string, epoch: number) => `${jobsFolder(job)}epoch_${epoch}/`;

/** Checkpoints of a job in their bucket: parts that hosts stored, and files that the program writes itself. */
export const checkpointsFolder = (job: string) => `checkpoints/${job}/`;
export const checkpointEpochFolder = (job: string, epoch: number) =>
  `${checkpointsFolder(job)}epoch_${epoch}/`;
export const ownFolder = (job: string) => `${checkpointsFolder(job)}own/`;

export function processFolder(job: string, epoch: number, index: number): string {
  return `${jobFolder(job, epoch)}host_${index}/`;
}

export const execFolder = (exec: string, worker: string, host: number) => `execs/${exec}/${worker}/${host}/`;
/** A code bundle of people, by its sha256. */
export const codeObject = (sha256: string) => `code/${sha256}.tar.gz`;

export const paths = {
  run: (run: string) => `runs/${run}`,
  streams: (run: string) => `runs/${run}/streams`,
  stream: (run: string, stream: string) => `runs/${run}/streams/${stream}`,
  shards: (run: string, stream: string) => `runs/${run}/streams/${stream}/shards`,
  shard: (run: string, stream: string, shard: number) =>
    `runs/${run}/streams/${stream}/shards/${shardId(shard)}`,
  pool: (pool: string) => `pools/${pool}`,
  /** A zone as the deployment's own pool sees it (null), or as another pool does. Pool names have no dot. */
  zone: (zone: string, pool: string | null = null) => `zones/${pool === null ? '' : `${pool}.`}${zone}`,
  prices: () => 'prices/chips',
  spending: () => 'system/spending',
  creates: () => 'system/creates',
  task: (id: string) => `tasks/${id}`,
  served: () => 'system/served',
  receiver: () => 'system/receiver',
  notice: (id: string) => `notices/${id}`,
  worker: (name: string) => `workers/${name}`,
  attempt: (name: string, incarnation: number) =>
    `workers/${name}/attempts/${String(incarnation).padStart(6, '0')}`,
  control: (message_id: string) => `control/${message_id}`,
  event: (id: string) => `events/${id}`,
  job: (collection: string, id: string) => `${collection}/${id}`,
  exec: (id: string) => `execs/${id}`,
  execHosts: (id: string) => `execs/${id}/hosts`,
  execHost: (id: string, worker: string, host: number) => `execs/${id}/hosts/${worker}.${host}`,
};
