import {readdir, readFile, stat} from 'node:fs/promises';
import {basename, dirname, join} from 'node:path';
import {CliError} from '../../../client/text/errors.ts';
import {counted, listText} from '../../../client/text/format.ts';
import {quoted} from '../../../client/text/output.ts';
import {formatOf, KNOWN_NAMES, type SourceOptions} from './formats.ts';

const OWN_FILES = ['checksums.json', 'run.json'];

/** Files of rows in a folder, in the order of their names. Says which files and folders are skipped. */
export async function filesOf(
  folder: string,
  {format, recursive = false}: Pick<SourceOptions, 'format' | 'recursive'>,
  say: (line: string) => void,
): Promise<string[]> {
  const files: string[] = [];
  const skipped: string[] = [];
  const folders: string[] = [];
  const read = async (inside: string): Promise<void> => {
    for (const entry of await readdir(join(folder, inside), {withFileTypes: true})) {
      const {name} = entry;
      const path = join(inside, name);
      // A link that leads nowhere is named when it is opened.
      const found = await stat(join(folder, path)).catch(() => undefined);
      // A link to a folder may lead back.
      if (entry.isDirectory() && !isHidden(name) && recursive) await read(path);
      else if (found?.isDirectory()) folders.push(path);
      else if (isHidden(name) || OWN_FILES.includes(name)) skipped.push(path);
      else if (format !== undefined || formatOf(name) !== undefined) files.push(path);
      else skipped.push(path);
    }
  };
  await read('');
  const skippedNote = skippedText(folder, skipped.sort(), folders.sort(), recursive);
  if (files.length === 0)
    throw new CliError(
      `There is no file of rows in ${folder}: put in files with ${KNOWN_NAMES}${skippedNote && `; ${skippedNote}`}`,
    );
  if (skippedNote) say(skippedNote);
  return files.sort().map(path => join(folder, path));
}

/** JSON beside the Arrow files that `save_to_disk` of the library datasets writes, each with a key that it has. */
const OF_SAVED: Record<string, string> = {'state.json': '"_data_files"', 'dataset_dict.json': '"splits"'};

/** Throws `CliError` for files of `save_to_disk`: their JSON has no rows. */
export async function refuseSaved(files: readonly string[]): Promise<void> {
  for (const file of files) {
    const key = OF_SAVED[basename(file)];
    const text = key === undefined ? '' : await readFile(file, 'utf8').catch(() => '');
    if (file.endsWith('.arrow') || (key !== undefined && text.includes(key))) throw ofSaved(file);
  }
}

function ofSaved(saved: string): CliError {
  const folder = dirname(saved);
  const split = basename(saved) === 'dataset_dict.json' ? '["train"]' : '';
  const code = `from datasets import load_from_disk; load_from_disk(${JSON.stringify(folder)})${split}.to_parquet("rows.parquet")`;
  return new CliError(
    `${folder} was written by save_to_disk, whose Arrow files this command does not read: write ${split ? 'each split' : 'it'} as Parquet with python -c ${quoted(code)}, and name rows.parquet`,
  );
}

function isHidden(name: string): boolean {
  return name.startsWith('.');
}

function skippedText(folder: string, files: string[], folders: string[], recursive: boolean): string {
  const parts = [
    ...(files.length > 0 ? [`${counted(files.length, 'file')} (${listText(files, 5)})`] : []),
    ...(folders.length > 0
      ? [
          `${counted(folders.length, 'folder')} (${listText(folders, 5)})${recursive ? '' : '; --recursive reads folders'}`,
        ]
      : []),
  ];
  return parts.length > 0 ? `${folder}: skipped ${parts.join(' and ')}` : '';
}
