/** Source and environment of the options that `cli/commands/source-options.ts` registers. */
import {readFile, stat} from 'node:fs/promises';
import {basename} from 'node:path';
import type {Cloud} from '../../client/cloud/cloud.ts';
import {createOnce} from '../../client/google/create-once.ts';
import {CliError, UsageError} from '../../client/text/errors.ts';
import {bytesText, counted} from '../../client/text/format.ts';
import {quoted, say} from '../../client/text/output.ts';
import {codeObject} from '../../shared/domain/names.ts';
import type {Environment, SourceChange} from '../../shared/domain/records/source.ts';
import {packFolder} from '../python/bundle.ts';
import {definedFields} from '../terminal/field-options.ts';

/** Null removes a part of the environment. */
export type SourceOptions = {
  bundle?: string;
  repo?: string | null;
  branch?: string;
  pr?: number;
  commit?: string;
  jax_version?: string | null;
  setup_script?: string | null;
  config?: string | null;
  ramfs_dir?: string | null;
};

/** Packed folder of code, and the source that names it. Null: no source. */
export type PackedCode = {
  source: SourceChange | null | undefined;
  object?: string;
  bytes?: Buffer;
  folder?: string;
};

export async function sourceOf(options: SourceOptions): Promise<PackedCode> {
  const {bundle, repo, branch, pr, commit} = options;
  if (bundle !== undefined) {
    await requireKind(bundle, 'folder');
    const {bytes, sha256, files} = await packFolder(bundle);
    say(`${bundle}: ${counted(files, 'file')}, ${bytesText(bytes.length)} packed`);
    return {source: {bundle: sha256}, object: codeObject(sha256), bytes, folder: bundle};
  }
  if (repo === null) {
    if (branch !== undefined || pr !== undefined || commit !== undefined)
      throw new UsageError('--repo none goes with no --branch, --pr or --commit');
    return {source: null};
  }
  const source = definedFields({repo, branch, pr, commit});
  if (Object.keys(source).length === 0) return {source: undefined};
  if (branch === undefined && pr === undefined && commit === undefined)
    throw new UsageError('--repo needs --branch, --pr or --commit');
  return {source: source as SourceChange};
}

export async function upload({objects}: Cloud, {object, bytes}: PackedCode): Promise<void> {
  if (object && bytes) await createOnce(objects, object, bytes, 'application/gzip');
}

/** Commands that store a packed folder: none without one. */
export function uploadLines({connection}: Cloud, {object, folder}: PackedCode): string[] {
  if (!object || !folder) return [];
  const to = `gs://${connection.bucket}/${object}`;
  return [
    `gcloud storage cp --if-generation-match=0 PACKED_${quoted(basename(folder) || 'code')}.tar.gz ${quoted(to)}`,
  ];
}

export async function environmentOf(options: SourceOptions): Promise<Partial<Environment> | undefined> {
  const {jax_version, setup_script, config, ramfs_dir} = options;
  const environment = definedFields({
    jax_version,
    setup_script: setup_script && (await readText(setup_script)),
    config_file: config && {name: basename(config), text: await readText(config)},
    ramfs_dir,
  }) as Partial<Environment>;
  return Object.keys(environment).length > 0 ? environment : undefined;
}

/** Text of a file that is not empty. */
export async function readText(file: string): Promise<string> {
  await requireKind(file, 'file');
  return decoded(await readFile(file), file);
}

export function decoded(bytes: Uint8Array, what: string): string {
  let text: string;
  try {
    text = new TextDecoder('utf-8', {fatal: true}).decode(bytes);
  } catch (cause) {
    throw new CliError(`Failed to read ${what}: it is not UTF-8 text`, {cause});
  }
  if (text.trim() === '') throw new CliError(`${what} is empty`);
  return text;
}

async function requireKind(path: string, kind: 'file' | 'folder'): Promise<void> {
  const found = await stat(path).catch((cause: Error) => {
    throw new CliError(`Failed to read ${path}: ${cause.message}`, {cause});
  });
  if (kind === 'folder' && !found.isDirectory()) throw new CliError(`${path} is a file: name a folder`);
  if (kind === 'file' && found.isDirectory())
    throw new CliError(`${path} is a folder: name a file, or --bundle ${path}`);
}
