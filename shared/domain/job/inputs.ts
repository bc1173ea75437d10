/** Inputs of a job: folders of the data bucket that its process reads. */
import {activationsFolder, RUN} from '../names.ts';

export const MOST_INPUTS = 4;
const RUN_PREFIX = 'run:';
const FOLDER = /^(activations|datasets|models)(\/[^/\p{Cc}]+)+$/u;

/** The run of an input `run:NAME`; undefined for an address. */
export function runOfInput(input: string): string | undefined {
  return input.startsWith(RUN_PREFIX) ? input.slice(RUN_PREFIX.length) : undefined;
}

/** Folder of an input, such as `activations/my-run/`. Undefined for an address that is not of this bucket, or of no folder for inputs. */
export function inputFolder(input: string, bucket: string): string | undefined {
  const run = runOfInput(input);
  if (run !== undefined) return RUN.test(run) ? activationsFolder(run) : undefined;
  const address = `gs://${bucket}/`;
  const name = input.startsWith(address) ? input.slice(address.length).replace(/\/$/, '') : '';
  return FOLDER.test(name) ? `${name}/` : undefined;
}

/** The folders of all inputs that have one. */
export function inputFolders(inputs: readonly string[], bucket: string): string[] {
  return inputs.slice(0, MOST_INPUTS).flatMap(input => inputFolder(input, bucket) ?? []);
}
