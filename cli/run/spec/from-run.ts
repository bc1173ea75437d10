/** Another run as the source of a run: its frozen spec and its streams. */

import type {Cloud} from '../../../client/cloud/cloud.ts';
import {type GoogleApi, googleOf} from '../../../client/google/api.ts';
import {CliError} from '../../../client/text/errors.ts';
import {counted} from '../../../client/text/format.ts';
import {quoted, say} from '../../../client/text/output.ts';
import {parseJson, parseValue} from '../../../shared/contracts/messages/schemas.ts';
import {MAX_MANIFEST_BYTES, manifest} from '../../../shared/contracts/spec/manifest.ts';
import {type RunSpecInput, runSpecInput} from '../../../shared/contracts/spec/spec.ts';
import {forEachConcurrently} from '../../../shared/control-plane/calls/concurrency.ts';
import {readText} from '../../../shared/control-plane/runs/run-manifest.ts';
import {
  datasetPrefix,
  manifestObject,
  parseDatasetObject,
  streamObject,
  streamPrefix,
} from '../../../shared/domain/names.ts';
import {isPreconditionFailed} from '../../../shared/google/errors.ts';
import type {ObjectInfo, Objects} from '../../../shared/ports/ports.ts';

/** Copies in the bucket that run at once. */
const PARALLEL = 8;

/** The spec and the placement of a run, as its manifest froze them. Throws `CliError` for a run that never began. */
export async function requireFrozen(cloud: Pick<Cloud, 'objects'>, run: string): Promise<RunSpecInput> {
  const frozen = await frozenInput(cloud, run);
  if (frozen) return frozen;
  throw new CliError(`Run ${run} has no frozen spec (${manifestObject(run)}): give its options, or --spec`);
}

/** The same; undefined for a run that never began. */
export async function frozenInput(
  {objects}: Pick<Cloud, 'objects'>,
  run: string,
): Promise<RunSpecInput | undefined> {
  const name = manifestObject(run);
  const text = await readText(objects, name, MAX_MANIFEST_BYTES);
  if (text === undefined) return undefined;
  const {spec, placement} = parseJson(manifest, text, name);
  return parseValue(runSpecInput, {...spec, ...placement}, `The spec in ${name}`);
}

/** Copies the streams of a run within the bucket, and returns their numbers. A copy that is there already stays. */
export async function copyStreams(cloud: Cloud, from: string, run: string): Promise<string[]> {
  const listed = await cloud.objects.list(streamPrefix(from));
  const streams = listed.flatMap(object => {
    const parsed = parseDatasetObject(object.name);
    return parsed.kind === 'stream' && parsed.run === from ? [{object, ...parsed}] : [];
  });
  if (streams.length === 0)
    throw new CliError(`The bucket has no stream of run ${from}: give --streams FOLDER`);
  say(`Copying ${counted(streams.length, 'stream')} of run ${from} within the bucket`);
  const api = googleOf(cloud.connection);
  await forEachConcurrently(
    streams,
    ({object, stream, gzip}) => copy(api, cloud.objects, object, streamObject(run, stream, gzip)),
    PARALLEL,
  );
  return streams.map(({stream}) => stream);
}

async function copy(api: GoogleApi, objects: Objects, from: ObjectInfo, to: string): Promise<void> {
  const {bucket} = objects;
  const of = (name: string) => `b/${bucket}/o/${encodeURIComponent(name)}`;
  const address = `storage.googleapis.com/storage/v1/${of(from.name)}/rewriteTo/${of(to)}?ifGenerationMatch=0`;
  try {
    // A large object takes several calls.
    for (let token = ''; ; ) {
      const answer = await api.call('POST', `${address}${token && `&rewriteToken=${token}`}`, {});
      if (answer.done !== false) return;
      token = encodeURIComponent(String(answer.rewriteToken));
    }
  } catch (error) {
    if (!isPreconditionFailed(error)) throw error;
    const there = await objects.head(to);
    if (there?.crc32c !== from.crc32c)
      throw new CliError(
        `gs://${bucket}/${to} exists with other content than ${from.name}: choose another run`,
      );
  }
}

/** The command of gcloud that copies the same streams. */
export function copyLine({bucket}: Cloud['connection'], from: string, run: string): string {
  const [source, target] = [from, run].map(name => `gs://${bucket}/${datasetPrefix(name)}`);
  return `gcloud storage cp --no-clobber ${quoted(`${source}stream_*`)} ${quoted(target ?? '')}`;
}
