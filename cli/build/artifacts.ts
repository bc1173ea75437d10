/** Artefacts of a deployment: the zip of the functions, the worker bundle, the worker environment, and their names for Terraform. */
import {createHash} from 'node:crypto';
import {existsSync} from 'node:fs';
import {copyFile, link, mkdir, mkdtemp, readdir, readFile, rename, rm, writeFile} from 'node:fs/promises';
import {dirname, join} from 'node:path';
import {fileURLToPath} from 'node:url';
import {unzipSync} from 'fflate';
import {packWorker} from '../python/bundle.ts';
import type {Environment} from './environment/environment.ts';
import {keptZip, ROOT, recordZip, zipFunctions} from './functions.ts';
import {type Bill, billOf} from './sbom.ts';

export const DIST = fileURLToPath(new URL('../../dist/', import.meta.url));

/** Terraform reads the variable `artifacts` from this file. */
export const VARIABLES_FILE = 'artifacts.auto.tfvars.json';

/** The artifacts of the last build, or those that a deployment goes back to. */
export async function builtArtifacts(): Promise<Omit<Artifacts, 'sbom'>> {
  const text = await readFile(join(DIST, VARIABLES_FILE), 'utf8');
  return (JSON.parse(text) as {artifacts: Artifacts}).artifacts;
}

/** File relative to `dist`, and its digest. */
type Artifact = {file: string; sha256: string; size_bytes: number};
export type Artifacts = {
  functions: Artifact;
  bundle: Artifact;
  environment?: Artifact;
  sbom: Bill & {file: string};
  /** Unpacked module that registers the functions. */
  module: string;
};

/** Makes all artefacts in `dist`, and removes those of other sources. The same inputs give the same bytes. */
export async function buildArtifacts(environment?: Environment): Promise<Artifacts> {
  await mkdir(DIST, {recursive: true});
  const [zip, worker] = await Promise.all([functionsZip(), packWorker(environment)]);
  const functions = described('functions', 'zip', zip);
  const bundle = described('bundle', 'tar.gz', worker.bytes);
  const archive = environment && {
    file: `environment-${environment.sha256}.tar.gz`,
    sha256: environment.sha256,
    size_bytes: environment.size_bytes,
  };
  const unpacked = functions.file.replace(/\.zip$/, '');
  const listed = functions.file.replace(
    /^functions-(.*)\.zip$/,
    `sbom-$1-${bundle.sha256.slice(0, 16)}.cdx.json`,
  );
  await removeOthers([unpacked, functions.file, bundle.file, archive?.file, listed]);
  await writeFile(join(DIST, functions.file), zip);
  await writeFile(join(DIST, bundle.file), worker.bytes);
  if (environment && archive) await linkOrCopy(environment.archive, join(DIST, archive.file));
  await unpack(zip, join(DIST, unpacked));
  const sbom = {file: listed, ...(await billOf(join(DIST, listed)))};
  const both = {functions: nameAndDigest(functions), bundle: nameAndDigest(bundle)};
  const variables = {artifacts: {...both, ...(archive ? {environment: nameAndDigest(archive)} : {})}};
  await writeFile(join(DIST, VARIABLES_FILE), `${JSON.stringify(variables, null, 2)}\n`);
  const module = join(DIST, unpacked, 'functions/index.js');
  return {functions, bundle, ...(archive ? {environment: archive} : {}), sbom, module};
}

/** The zip that `dist/` has of the same sources, or a new one. */
async function functionsZip(): Promise<Uint8Array> {
  const began_ms = Date.now();
  const zipInDist = keptZip(DIST, ROOT);
  if (zipInDist) return zipInDist;
  const made = await zipFunctions();
  await recordZip(DIST, ROOT, made, began_ms);
  return made.zip;
}

/** Gives a large file a second name. Another disk needs a copy. */
async function linkOrCopy(from: string, to: string): Promise<void> {
  if (existsSync(to)) return;
  await link(from, to).catch(() => copyFile(from, to));
}

function described(name: string, extension: string, bytes: Uint8Array): Artifact {
  const sha256 = createHash('sha256').update(bytes).digest('hex');
  return {file: `${name}-${sha256}.${extension}`, sha256, size_bytes: bytes.length};
}

function nameAndDigest({file, sha256}: Artifact) {
  return {file, sha256};
}

/** Unpacks the zip into a folder that appears whole: another process may build the same sources now. */
async function unpack(zip: Uint8Array, folder: string): Promise<void> {
  if (existsSync(folder)) return;
  const temporary = await mkdtemp(join(DIST, '.unpacked-'));
  for (const [name, bytes] of Object.entries(unzipSync(zip))) {
    const path = join(temporary, name);
    await mkdir(dirname(path), {recursive: true});
    await writeFile(path, bytes);
  }
  await rename(temporary, folder).catch(async error => {
    await rm(temporary, {recursive: true});
    if (!existsSync(folder)) throw error;
  });
}

/** Removes artefacts of other sources and nothing else: a person may keep a plan of Terraform in the folder. */
async function removeOthers(kept: (string | undefined)[]): Promise<void> {
  const built =
    /^(functions-[0-9a-f]{64}(\.zip)?|(bundle|environment)-[0-9a-f]{64}\.tar\.gz|sbom-[0-9a-f]{64}-[0-9a-f]{16}\.cdx\.json)$/;
  for (const name of await readdir(DIST))
    if (built.test(name) && !kept.includes(name)) await rm(join(DIST, name), {recursive: true, force: true});
}
