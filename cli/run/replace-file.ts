import {rename, writeFile} from 'node:fs/promises';
import {CliError} from '../terminal/errors.ts';

/** Replaces a file as a whole: no reader sees a part of it. */
export async function replaceFile(name: string, text: string): Promise<{file: string; size_bytes: number}> {
  const draft = `${name}.${process.pid}.tmp`;
  try {
    await writeFile(draft, text);
    await rename(draft, name);
  } catch (error) {
    throw new CliError(`Failed to write ${name}: ${(error as Error).message}`, {cause: error});
  }
  return {file: name, size_bytes: Buffer.byteLength(text)};
}
