/** Artefacts of an earlier deployment, from the data bucket. */
import {createHash} from 'node:crypto';
import {mkdir, writeFile} from 'node:fs/promises';
import {join} from 'node:path';
import type {Objects} from '../../shared/ports.ts';
import {DIST, VARIABLES_FILE} from '../build/artifacts.ts';
import {CliError} from '../terminal/errors.ts';
import {say} from '../terminal/output.ts';
import type {Record} from './records.ts';

const MOST_BYTES = 1 << 30;

/** Name of an artefact in the data bucket, as `terraform/` stores it. */
const NAMES = {
  functions: (sha256: string) => `functions/${sha256}.zip`,
  bundle: (sha256: string) => `bundles/${sha256}.tar.gz`,
  environment: (sha256: string) => `environments/${sha256}.tar.gz`,
};
const KINDS = Object.keys(NAMES) as (keyof typeof NAMES)[];

/** Writes the artefacts of a deployment into `dist/`, as a build does. Throws `CliError` for a missing or a damaged one. */
export async function restoreArtifacts(data: Objects, {artifacts, deployed_at}: Record): Promise<void> {
  await mkdir(DIST, {recursive: true});
  for (const kind of KINDS) {
    const artifact = artifacts[kind];
    if (!artifact) continue;
    const {file, sha256} = artifact;
    const name = NAMES[kind](sha256);
    const bytes = await data.read(name, {max_bytes: MOST_BYTES});
    if (!bytes)
      throw new CliError(
        `Failed to go back to the deployment of ${deployed_at}: gs://${data.bucket}/${name} is gone`,
      );
    const found = createHash('sha256').update(bytes).digest('hex');
    if (found !== sha256)
      throw new CliError(
        `Failed to go back to the deployment of ${deployed_at}: gs://${data.bucket}/${name} has sha256 ${found}`,
      );
    await writeFile(join(DIST, file), bytes);
  }
  await writeFile(join(DIST, VARIABLES_FILE), `${JSON.stringify({artifacts}, null, 2)}\n`);
  say(`Taking the functions and the worker bundle of the deployment of ${deployed_at}`);
}
