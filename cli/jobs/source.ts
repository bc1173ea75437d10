/** Source and environment of the options that `cli/commands/source-options.ts` registers. */
import {readFile, stat} from 'node:fs/promises';
import {basename} from 'node:path';
import type {SourceChange} from '../../shared/contracts/job-schemas.ts';
import {codeObject} from '../../shared/domain/names.ts';
import type {Environment} from '../../shared/domain/source/source.ts';
import type {Cloud} from '../cloud/send-message.ts';
import {packFolder} from '../python/bundle.ts';
import {CliError} from '../terminal/errors.ts';
import {bytesText, counted} from '../terminal/format.ts';
import {quoted, say} from '../terminal/output.ts';

/** The value of an option that removes a part of an environment. */
const NONE = 'none';

export type SourceOptions = {
  bundle?: string;
  repo?: string;
  branch?: string;
  pr?: number;
  commit?: string;
  jaxVersion?: string;
  setupScript?: string;
  config?: string;
  ramfsDir?: string;
};

/** Packed folder of code, and the source that names it. */
export type PackedCode = {source: SourceChange | undefined; object?: string; bytes?: Buffer; folder?: string};

export async function sourceOf(options: SourceOptions): Promise<PackedCode> {
  const {bundle, repo, branch, pr, commit} = options;
  if (bundle !== undefined) {
    await requireKind(bundle, 'folder');
    const {bytes, sha256, files} = await packFolder(bundle);
    say(`${bundle}: ${counted(files, 'file')}, ${bytesText(bytes.length)} packed`);
    return {source: {bundle: sha256}, object: codeObject(sha256), bytes, folder: bundle};
  }
  const of = repo === undefined ? {} : {repo};
  if (branch !== undefined) return {source: {...of, branch}};
  if (pr !== undefined) return {source: {...of, pr}};
  if (commit !== undefined) return {source: {...of, commit}};
  if (repo !== undefined) throw new CliError('--repo needs --branch, --pr or --commit: name what to run');
  return {source: undefined};
}

/** Stores the packed folder. The name is its digest, so an object that exists is the same. */
export async function upload({objects}: Cloud, {object, bytes}: PackedCode): Promise<void> {
  if (object && bytes) await objects.create(object, bytes, {content_type: 'application/gzip'});
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
  const {jaxVersion, setupScript, config, ramfsDir} = options;
  const configFile = async (path: string) => ({name: basename(path), text: await readText(path)});
  const environment = {
    ...(jaxVersion === undefined ? {} : {jax_version: jaxVersion === NONE ? null : jaxVersion}),
    ...(setupScript === undefined
      ? {}
      : {setup_script: setupScript === NONE ? null : await readText(setupScript)}),
    ...(config === undefined ? {} : {config_file: config === NONE ? null : await configFile(config)}),
    ...(ramfsDir === undefined ? {} : {ramfs_dir: ramfsDir === NONE ? null : ramfsDir}),
  };
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
    throw new CliError(`${what} is no text in UTF-8`, {cause});
  }
  if (text.trim() === '') throw new CliError(`${what} is empty`);
  return text;
}

async function requireKind(path: string, kind: 'file' | 'folder'): Promise<void> {
  const found = await stat(path).catch((cause: Error) => {
    throw new CliError(`Failed to read ${path}: ${cause.message}`, {cause});
  });
  if (kind === 'folder' && !found.isDirectory()) throw new CliError(`${path} is no folder`);
  if (kind === 'file' && found.isDirectory())
    throw new CliError(`${path} is a folder: name a file, or --bundle ${path}`);
}
