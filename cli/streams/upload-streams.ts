/** Upload of a folder of streams to a run: parallel, create-only, and continued by the same command. */

import type {Cloud} from '../../client/cloud/cloud.ts';
import {resumableUploads} from '../../client/google/resumable.ts';
import type {Answers} from '../../client/json/index.ts';
import {CliError, Interrupted} from '../../client/text/errors.ts';
import {bytesText, counted, durationText} from '../../client/text/format.ts';
import {quoted} from '../../client/text/output.ts';
import {forEachConcurrently} from '../../shared/control-plane/calls/concurrency.ts';
import {datasetPrefix, specObject, streamObject, streamPrefix} from '../../shared/domain/names.ts';
import type {ObjectInfo} from '../../shared/ports/ports.ts';
import {readStreamFolder, type StreamFile, type StreamFolder} from './folder.ts';
import {transferProgress} from './progress.ts';
import {Sessions} from './sessions.ts';
import {contentOf, type Uploader, uploadFile} from './upload-file.ts';

const DEFAULT_PARALLEL = 8;

export type UploadOptions = {
  parallel?: number | undefined;
  /** Gets lines of progress. */
  say?: ((line: string) => void) | undefined;
  /** Ends the upload. The same upload goes on later. */
  stopped?: AbortSignal | undefined;
  /** False: `run.json` of the folder stays where it is. */
  with_spec?: boolean;
};

type Destination = Uploader & {run: string};

type UploadReport = Exclude<Answers['streams upload'], {commands: string[]}>;

/** Uploads every stream of the folder. `run.json` goes first, because the first stream freezes the spec. */
export async function uploadStreams(
  {connection, objects}: Pick<Cloud, 'connection' | 'objects'>,
  folder: string,
  run: string,
  {parallel = DEFAULT_PARALLEL, say = () => {}, stopped, with_spec = true}: UploadOptions = {},
): Promise<UploadReport> {
  const local = await readStreamFolder(folder);
  const {project, bucket, storage_endpoint: endpoint, token} = connection;
  const stored = new Map((await objects.list(streamPrefix(run))).map(info => [info.name, info]));
  for (const stream of local.streams) requireFree(stream, run, bucket, stored);
  const failed = new AbortController();
  const stop = stopped ? AbortSignal.any([stopped, failed.signal]) : failed.signal;
  const total = local.streams.reduce((sum, {bytes}) => sum + bytes, 0);
  const progress = transferProgress(say, local.streams.length, total);
  const sessions = new Sessions(folder, bucket);
  const resumable = resumableUploads({project, bucket, endpoint, token});
  const to: Destination = {objects, resumable, sessions, run, stop, moved: bytes => progress.moved(bytes)};
  try {
    const spec = with_spec ? await uploadSpec(to, local, bucket) : null;
    const upload = async (stream: StreamFile) => {
      stop.throwIfAborted();
      progress.ended(await uploadOne(to, stream, stored, bucket));
    };
    // The first failure stops the other uploads.
    const failing = (error: unknown) => {
      failed.abort();
      throw error;
    };
    await forEachConcurrently(local.streams, stream => upload(stream).catch(failing), parallel);
    await sessions.end();
    const streams = local.streams.length;
    return {run, bucket, prefix: datasetPrefix(run), spec, streams, ...progress.report(), bytes: total};
  } catch (error) {
    if (!stopped?.aborted) throw error;
    throw new Interrupted(
      `Interrupted after ${progress.done()} of ${counted(local.streams.length, 'stream')}: the same command continues there`,
    );
  } finally {
    progress.end();
  }
}

export function uploadLines({folder, spec, streams}: StreamFolder, run: string, bucket: string): string[] {
  const to = `gs://${bucket}/${datasetPrefix(run)}`;
  const copy = (files: string) => `gcloud storage cp --no-clobber ${files} ${quoted(to)}`;
  const kinds = [false, true].filter(gzip => streams.some(stream => stream.gzip === gzip));
  const files = kinds.map(gzip => `${quoted(folder)}/stream_*.jsonl${gzip ? '.gz' : ''}`);
  return [...(spec ? [copy(quoted(`${folder}/run.json`))] : []), copy(files.join(' '))];
}

export function uploadReportLines(report: UploadReport): string[] {
  const there = report.already_there > 0 ? `, ${report.already_there} already there` : '';
  const rate = report.uploaded_bytes / Math.max(report.seconds, 0.001);
  const speed = report.uploaded > 0 ? `, ${bytesText(Math.round(rate))}/s` : '';
  return [
    `${counted(report.streams, 'stream')} in gs://${report.bucket}/${report.prefix}: ${report.uploaded} uploaded${there}, ${bytesText(report.bytes)} in ${durationText(report.seconds)}${speed}`,
  ];
}

async function uploadSpec(
  {objects, run}: Destination,
  {folder, spec}: StreamFolder,
  bucket: string,
): Promise<UploadReport['spec']> {
  if (!spec) return null;
  const name = specObject(run);
  const outcome = await objects.create(name, spec, {content_type: 'application/json'});
  if (outcome === 'created') return 'uploaded';
  const there = await objects.read(name, {max_bytes: 1 << 20});
  if (there && spec.equals(there)) return 'already there';
  throw new CliError(
    `gs://${bucket}/${name} has other content than ${folder}/run.json: choose another name for the run, or make the file equal`,
  );
}

async function uploadOne(
  to: Destination,
  stream: StreamFile,
  stored: Map<string, ObjectInfo>,
  bucket: string,
): Promise<{isNew: boolean; bytes: number}> {
  const content = await contentOf(stream, to.run, to.stop);
  const known = stored.get(content.name);
  const isNew = !known && (await uploadFile(to, stream, content)) === 'uploaded';
  if (!isNew) {
    const there = known ?? (await to.objects.head(content.name));
    if (there?.crc32c !== content.crc32c || there.size_bytes !== content.size_bytes)
      throw conflict(stream, content.name, bucket, `: crc32c ${there?.crc32c} there, ${content.crc32c} here`);
    await to.sessions.forget(stream.file);
    if (known) to.moved(stream.bytes);
  }
  return {isNew, bytes: stream.bytes};
}

/** Finds what cannot be uploaded before the first byte is sent. */
function requireFree(stream: StreamFile, run: string, bucket: string, stored: Map<string, ObjectInfo>): void {
  const twin = streamObject(run, stream.stream, !stream.gzip);
  if (stored.has(twin))
    throw new CliError(
      `Failed to upload ${stream.path}: the run has this stream as gs://${bucket}/${twin}; choose another name for the run, or move the file away`,
    );
  const name = streamObject(run, stream.stream, stream.gzip);
  const there = stored.get(name);
  if (!there) return;
  const isOther = there.size_bytes !== stream.bytes;
  if (isOther || (stream.known && stream.known.crc32c !== there.crc32c)) throw conflict(stream, name, bucket);
}

function conflict({path}: StreamFile, name: string, bucket: string, digests = ''): CliError {
  return new CliError(
    `gs://${bucket}/${name} exists with other content than ${path}${digests}, and was not replaced: choose another name for the run, or another number for the stream`,
  );
}
