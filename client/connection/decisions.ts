/** Which cloud this user chose for which folder, in a private file of the user. */
import {mkdirSync} from 'node:fs';
import {dirname, join} from 'node:path';
import {z} from 'zod';
import {readPrivate, writePrivate} from '../../emulator/http/private-file.ts';
import {CliError} from '../text/errors.ts';
import {homeFolder} from './cloud-name.ts';

/** `cloud`: its name. `offered`: names of the clouds that the folder had when its user decided. */
const decision = z.strictObject({folder: z.string(), cloud: z.string(), offered: z.array(z.string())});
export type Decision = z.infer<typeof decision>;

const decisionsFile = () =>
  join(process.env.XDG_CONFIG_HOME || join(homeFolder(), '.config'), 'gleaner', 'clouds.json');

/** Throws `CliError` for a file that this program did not write. */
export function readDecisions(): Decision[] {
  const file = decisionsFile();
  const text = readPrivate(file);
  if (text === undefined) return [];
  try {
    return z.array(decision).parse(JSON.parse(text));
  } catch (cause) {
    throw new CliError(
      `${file} is not valid: delete it, and \`gleaner cloud use\` writes a new one for each folder`,
      {cause},
    );
  }
}

/** Replaces the decision about a folder. */
export function decide(made: Decision): void {
  writeDecisions([...readDecisions().filter(({folder}) => folder !== made.folder), made]);
}

/** Forgets a cloud, and returns the folders that used it. */
export function forget(cloud: string): string[] {
  const all = readDecisions();
  const gone = all.filter(each => each.cloud === cloud);
  if (gone.length > 0) writeDecisions(all.filter(each => each.cloud !== cloud));
  return gone.map(({folder}) => folder);
}

function writeDecisions(all: Decision[]): void {
  const file = decisionsFile();
  mkdirSync(dirname(file), {recursive: true, mode: 0o700});
  writePrivate(file, `${JSON.stringify(all, null, 2)}\n`);
}
