import {existsSync} from 'node:fs';
import {mkdir, mkdtemp, readdir, readFile, rename, rm} from 'node:fs/promises';
import {dirname, join} from 'node:path';
import type {Objects} from '../../shared/ports/ports.ts';
import {runWorkerModule} from '../python/python.ts';
import {CliError} from '../text/errors.ts';

const PREFIX = 'models/tiny/';

/** Address of the tiny random model in the bucket of a local cloud. */
export function tinyModel(bucket: string): string {
  return `gs://${bucket}/${PREFIX.slice(0, -1)}`;
}

/** Uploads the tiny random model, the default model of a local cloud, once to each bucket. */
export async function provideTinyModel(
  objects: Objects,
  folder: string,
  begin: (step: string) => void,
): Promise<void> {
  if (await objects.head(`${PREFIX}config.json`)) return;
  await makeTinyModel(folder, begin);
  // config.json is last: its object shows that the upload is complete.
  const put = async (name: string) => objects.create(`${PREFIX}${name}`, await readFile(join(folder, name)));
  await Promise.all((await readdir(folder)).filter(name => name !== 'config.json').map(put));
  await put('config.json');
}

/** Writes the model once for each version of the worker's code. The same code and seed give the same bytes. */
export async function makeTinyModel(folder: string, begin: (step: string) => void): Promise<void> {
  if (existsSync(folder)) return;
  begin('Making a tiny random model');
  await mkdir(dirname(folder), {recursive: true});
  const unfinished = await mkdtemp(`${folder}.`);
  try {
    const made = await runWorkerModule(
      ['gleaner_worker.model.tiny', unfinished, '--seed', '0'],
      {},
      () => {},
    );
    if (made.code !== 0)
      throw new CliError(
        `Failed to make the tiny model (exit ${made.code}): ${made.stderr.slice(-3).join(' | ')}`,
      );
    await rename(unfinished, folder);
  } catch (error) {
    // Another local cloud may have written the same folder.
    if (!existsSync(folder)) throw error;
  } finally {
    await rm(unfinished, {recursive: true, force: true});
  }
}
