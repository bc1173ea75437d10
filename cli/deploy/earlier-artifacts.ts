/** Artefacts of an earlier deployment, from the data bucket. */

import {existsSync} from 'node:fs';
import {mkdir, rm, writeFile} from 'node:fs/promises';
import {join} from 'node:path';
import {Downloads} from '../../client/google/downloads.ts';
import {sha256Of} from '../../client/google/hash-file.ts';
import {CliError} from '../../client/text/errors.ts';
import {say} from '../../client/text/output.ts';
import {utcText} from '../../shared/domain/time.ts';
import {openObjects, type StorageBucketOptions} from '../../shared/google/objects.ts';
import {DIST, VARIABLES_FILE} from '../build/artifacts.ts';
import type {Record} from './records.ts';

/** Name of an artefact in the data bucket, as `terraform/` stores it. */
const NAMES = {
  functions: (sha256: string) => `functions/${sha256}.zip`,
  bundle: (sha256: string) => `bundles/${sha256}.tar.gz`,
  environment: (sha256: string) => `environments/${sha256}.tar.gz`,
};
const KINDS = Object.keys(NAMES) as (keyof typeof NAMES)[];

/** Writes the artefacts of a deployment into `dist/`, as a build does. Throws `CliError` for a missing or a damaged one. */
export async function restoreArtifacts(
  bucket: StorageBucketOptions,
  {artifacts, deployed_at}: Record,
): Promise<void> {
  await mkdir(DIST, {recursive: true});
  for (const kind of KINDS) {
    const artifact = artifacts[kind];
    if (!artifact) continue;
    const {file, sha256} = artifact;
    const problem = await restoreFile(bucket, NAMES[kind](sha256), {path: join(DIST, file), sha256});
    if (problem !== undefined)
      throw new CliError(`Failed to go back to the deployment of ${utcText(deployed_at)}: ${problem}`);
  }
  await writeFile(join(DIST, VARIABLES_FILE), `${JSON.stringify({artifacts}, null, 2)}\n`);
  say(`Taking the functions and the worker bundle of the deployment of ${utcText(deployed_at)}`);
}

/** Why the file does not have the bytes of the object, or undefined. A download that breaks goes on at its last byte. */
export async function restoreFile(
  bucket: StorageBucketOptions,
  name: string,
  {path, sha256}: {path: string; sha256: string},
): Promise<string | undefined> {
  if (existsSync(path) && (await sha256Of(path)) === sha256) return undefined;
  // The file may be a second name of a file in a cache, so it is replaced and not written.
  await rm(path, {force: true});
  const info = await openObjects(bucket).head(name);
  if (!info) return `gs://${bucket.bucket}/${name} is gone`;
  try {
    await new Downloads(bucket).write(info, path);
  } catch (error) {
    return (error as Error).message;
  }
  const found = await sha256Of(path);
  if (found === sha256) return undefined;
  await rm(path);
  return `gs://${bucket.bucket}/${name} has sha256 ${found}`;
}
