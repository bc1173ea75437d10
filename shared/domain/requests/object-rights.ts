/** Rights of a host in the buckets: those of its incarnation, and those of each lease that its worker holds. */
import {inputFolders} from '../job/inputs.ts';
import {
  checkpointEpochFolder,
  checkpointsFolder,
  execFolder,
  jobFolder,
  logsPrefix,
  modelLockObject,
  outputPrefix,
  ownFolder,
  partialsPrefix,
  streamObject,
} from '../names.ts';
import type {Job} from '../records/job.ts';
import type {Worker} from '../records/worker.ts';

/**
 * `get` reads objects by name. `read` also lists them. `create` also stores new objects. `overwrite` also replaces them, but reads nothing.
 * `manage` reads, lists, creates, replaces and deletes. `see` reads the settings of the bucket, and no object.
 * Each applies to exact names and to all names below a prefix.
 */
export type ObjectRights = {
  bucket: string;
  may: 'get' | 'read' | 'create' | 'overwrite' | 'manage' | 'see';
  names?: string[];
  prefixes?: string[];
};

type Buckets = {bucket: string; logs_bucket: string; checkpoints_bucket: string};

/**
 * Rights without a lease: the log of the incarnation, and code bundles. The name of a bundle is the SHA-256 of its content and hosts cannot
 * list bundles, so a host reads only bundles that an order has named.
 */
export function rightsOfHost(
  {name, incarnation}: Pick<Worker, 'name' | 'incarnation'>,
  {bucket, logs_bucket}: Pick<Buckets, 'bucket' | 'logs_bucket'>,
): ObjectRights[] {
  return [
    {bucket: logs_bucket, may: 'overwrite', prefixes: [logsPrefix(name, incarnation)]},
    {bucket, may: 'get', prefixes: ['code/']},
  ];
}

/** Rights of the lease of a stream. `weights`: of the model and of reductions, as the spec of the run names them. */
export function rightsOfStream(
  {run, stream}: {run: string; stream: string},
  weights: readonly string[],
  {bucket}: Pick<Buckets, 'bucket'>,
): ObjectRights[] {
  const prefixes = weights.flatMap(each => folderIn(bucket, each) ?? []);
  const streams = [streamObject(run, stream), streamObject(run, stream, true)];
  const own = [outputPrefix(run, stream), partialsPrefix(run, stream)];
  return [
    {bucket, may: 'create', names: [modelLockObject(run)], prefixes: own},
    {bucket, may: 'get', names: streams},
    ...(prefixes.length === 0 ? [] : [{bucket, may: 'read' as const, prefixes}]),
  ];
}

/** An agent creates the output and the versions of its own attempt, and reads those of all attempts of the job. */
export function rightsOfJob(
  {job, epoch}: {job: string; epoch: number},
  {bucket, checkpoints_bucket}: Pick<Buckets, 'bucket' | 'checkpoints_bucket'>,
): ObjectRights[] {
  return [
    {bucket, may: 'create', prefixes: [jobFolder(job, epoch)]},
    {bucket: checkpoints_bucket, may: 'create', prefixes: [checkpointEpochFolder(job, epoch)]},
    {bucket: checkpoints_bucket, may: 'get', prefixes: [checkpointsFolder(job)]},
  ];
}

/**
 * Rights of the process of a job, whatever its attempt: its own folder and its inputs. Clients ask for a folder without its slash, list it
 * so, and Orbax asks for the settings of the bucket before it deletes. Names beside `own/` that begin with it belong to the same job; names
 * beside an input may belong to another run.
 */
export function rightsOfJobProcess(
  {job, inputs}: Pick<Job, 'job' | 'inputs'>,
  {bucket, checkpoints_bucket}: Pick<Buckets, 'bucket' | 'checkpoints_bucket'>,
): ObjectRights[] {
  const read = inputFolders(inputs, bucket).map(folder => ({
    names: [folder.slice(0, -1)],
    prefixes: [folder],
  }));
  return [
    {bucket: checkpoints_bucket, may: 'manage', prefixes: [ownFolder(job).slice(0, -1)]},
    {bucket: checkpoints_bucket, may: 'see'},
    ...read.map(each => ({bucket, may: 'read' as const, ...each})),
  ];
}

export function rightsOfExec(
  exec: string,
  {name}: Pick<Worker, 'name'>,
  host: number,
  {bucket}: Pick<Buckets, 'bucket'>,
): ObjectRights[] {
  return [{bucket, may: 'create', prefixes: [execFolder(exec, name, host)]}];
}

/** Folder of a model in the bucket; undefined for a model of another bucket or of a hub. */
function folderIn(bucket: string, weights: string): string | undefined {
  const address = `gs://${bucket}/`;
  if (!weights.startsWith(address)) return undefined;
  const name = weights.slice(address.length).replace(/\/+$/, '');
  return name.endsWith('.safetensors') ? name : `${name}/`;
}
