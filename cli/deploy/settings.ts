/** Settings of a deployment: a `.tfvars.json` file, which plain Terraform reads as well. */
import {readFile} from 'node:fs/promises';
import {fileURLToPath} from 'node:url';
import {z} from 'zod';
import {Rejected} from '../../shared/contracts/errors.ts';
import {parseJson} from '../../shared/contracts/schemas.ts';
import {CliError} from '../errors.ts';

export const SETTINGS_FILE = 'gleaner.tfvars.json';
export const EXAMPLE = fileURLToPath(new URL('../../terraform/example.tfvars.json', import.meta.url));

/** The settings that a deployment needs before Terraform starts; Terraform checks all settings. */
const settings = z.looseObject({
  project: z.string('the id of a Google Cloud project'),
  name: z.string().optional(),
});

export type Settings = z.infer<typeof settings>;

/** Reads a file of settings. Throws `CliError`, which names the file and what to do. */
export async function readSettings(file: string): Promise<Settings> {
  const text = await readFile(file, 'utf8').catch((error: NodeJS.ErrnoException) => {
    const advice =
      error.code === 'ENOENT' ? 'copy terraform/example.tfvars.json to it, and set your project in it' : '';
    throw new CliError(`Failed to read the settings in ${file}: ${advice || error.message}`, {cause: error});
  });
  try {
    return parseJson(settings, text, file);
  } catch (error) {
    throw error instanceof Rejected ? new CliError(error.message, {cause: error}) : error;
  }
}
