/** The environment of a worker as one archive: CPython, the locked packages and uv. It runs from any folder of a TPU VM. */

import {execFile} from 'node:child_process';
import {createHash} from 'node:crypto';
import {createWriteStream} from 'node:fs';
import {mkdir, readdir, readFile, rename, rm, stat, utimes, writeFile} from 'node:fs/promises';
import {join} from 'node:path';
import {Transform} from 'node:stream';
import {pipeline} from 'node:stream/promises';
import {promisify} from 'node:util';
import {
  cacheFolder,
  callScript,
  lockSha256,
  lockText,
  TPU_LOCK,
  UV_LOCK,
  uvCache,
} from '../../../client/python/python.ts';
import {CliError} from '../../../client/text/errors.ts';
import {counted} from '../../../client/text/format.ts';
import {filesIn, packedFiles} from '../../python/bundle.ts';
import {isRunning} from '../../terminal/is-running.ts';
import {requirePortable} from './portable.ts';
import {
  copyPython,
  downloadedPython,
  downloadPython,
  type Python,
  pythonHere,
  RUNS_HERE,
} from './portable-python.ts';

const run = promisify(execFile);
const environmentsFolder = () => join(cacheFolder(), 'environments');
const ARCHIVE = 'environment.tar.gz';
const FACTS = 'environment.json';

/** The tag of wheels for Ubuntu 22.04. */
const TARGET = 'x86_64-manylinux_2_35';

/** A new number gives new keys: raise it with a change of what the archive holds. */
const FORM = 1;

/** Imported by the check of a new environment. */
const MODULES =
  'ctypes, google.cloud.storage, hashlib, jax, lzma, numpy, safetensors, sqlite3, ssl, tokenizers, zlib';

export type Environment = {
  /** Names the folder on a VM: 16 hex digits of the inputs. */
  key: string;
  sha256: string;
  size_bytes: number;
  archive: string;
};

type EnvironmentOptions = {say: (line: string) => void; lock?: string};

/** The environment of a lock file, from the cache; built where it is missing. */
export async function buildEnvironment({say, lock = TPU_LOCK}: EnvironmentOptions): Promise<Environment> {
  return (await builtEnvironment(lock)) ?? (await build(lock, say));
}

/** The environment of a lock file, if the cache has it. */
export async function builtEnvironment(lock = TPU_LOCK): Promise<Environment | undefined> {
  for (const choose of [downloadedPython, pythonHere]) {
    const python = await choose();
    const cached = python && (await read(await keyOf(lock, python)));
    if (cached) return cached;
  }
  return undefined;
}

export async function keyOf(lock: string, python: Pick<Python, 'identity'>): Promise<string> {
  const inputs = [FORM, TARGET, python.identity, await readFile(UV_LOCK, 'utf8'), await lockText(lock)];
  return createHash('sha256').update(inputs.join('\n')).digest('hex').slice(0, 16);
}

async function read(key: string): Promise<Environment | undefined> {
  const folder = join(environmentsFolder(), key);
  const text = await readFile(join(folder, FACTS), 'utf8').catch(() => undefined);
  if (text === undefined) return undefined;
  await markUsed(folder);
  return {...JSON.parse(text), key, archive: join(folder, ARCHIVE)};
}

/** Another process may build the same environment: the first one that ends publishes its folder. */
async function build(lock: string, say: (line: string) => void): Promise<Environment> {
  const uv = await callScript('ensure_uv', [UV_LOCK], say);
  const python = await choosePython(uv, say);
  const key = await keyOf(lock, python);
  const unfinished = join(environmentsFolder(), `${key}.unfinished.${process.pid}`);
  await removeUnfinished();
  const tree = join(unfinished, 'tree');
  try {
    say(`Building the worker environment ${key} with ${python.root}`);
    await copyPython(python, tree, say);
    const packages = join(tree, 'lib', python.name, 'site-packages');
    await install(uv, python, lock, packages);
    // Scripts name the Python of this machine.
    await rm(join(packages, 'bin'), {recursive: true, force: true});
    await install(uv, python, UV_LOCK, join(unfinished, 'uv'));
    await rename(join(unfinished, 'uv', 'bin', 'uv'), join(tree, 'bin', 'uv'));
    await writeFile(join(tree, 'lock-sha256'), `${await lockSha256(lock)}\n`);
    await requirePortable(tree);
    if (RUNS_HERE) await requireImports(tree);
    say('Packing the worker environment, which takes a minute');
    await pack(tree, unfinished);
    for (const rest of ['tree', 'uv']) await rm(join(unfinished, rest), {recursive: true});
    await rename(unfinished, join(environmentsFolder(), key)).catch(error => {
      if (error.code !== 'ENOTEMPTY' && error.code !== 'EEXIST') throw error;
    });
  } finally {
    await rm(unfinished, {recursive: true, force: true});
  }
  const built = await read(key);
  if (!built)
    throw new CliError(`Failed to build the worker environment: ${environmentsFolder()}/${key} is gone`);
  const removed = await removeUnused(environmentsFolder());
  if (removed > 0) say(`Removed ${counted(removed, 'old worker environment')} from ${environmentsFolder()}`);
  return built;
}

/** A Python of this machine takes the place of a download that fails. */
async function choosePython(uv: string, say: (line: string) => void): Promise<Python> {
  const downloaded = downloadedPython();
  if (downloaded) return downloaded;
  say('Downloading a portable Python');
  try {
    return await downloadPython(uv);
  } catch (error) {
    const here = await pythonHere();
    const why = error instanceof Error ? error.message : String(error);
    if (!here)
      throw new CliError(
        `Failed to download a portable Python: ${why}: let this machine reach github.com, or run the command on Linux with Python 3.12`,
        {cause: error},
      );
    say(`Failed to download a portable Python: ${why}. Taking ${here.root}`);
    return here;
  }
}

async function install(uv: string, python: Python, lock: string, folder: string): Promise<void> {
  const interpreter = RUNS_HERE
    ? join(python.root, 'bin', python.name)
    : await callScript('ensure_python', [uv]);
  const target = [
    '--python',
    interpreter,
    '--python-platform',
    TARGET,
    '--python-version',
    python.name.replace(/^python/, ''),
  ];
  const options = ['--quiet', '--require-hashes', '--no-deps', '--no-build', ...target, '--target', folder];
  await run(uv, ['pip', 'install', ...options, '--requirement', lock], {
    env: {...process.env, UV_CACHE_DIR: uvCache()},
  }).catch(error => {
    throw new CliError(`Failed to install what ${lock} names: ${String(error.stderr).trim()}`, {
      cause: error,
    });
  });
}

/** Starts the environment without any variable of this machine. */
async function requireImports(tree: string): Promise<void> {
  const code = `import sys; assert sys.prefix == sys.argv[1], sys.prefix; import ${MODULES}`;
  await run(join(tree, 'bin', 'python3'), ['-I', '-B', '-c', code, tree], {
    env: {JAX_PLATFORMS: 'cpu'},
  }).catch(error => {
    const why = String(error.stderr).trim().split('\n').at(-1);
    throw new CliError(
      `Failed to build the worker environment: it does not start: ${why}: let this machine reach github.com, so that uv downloads a Python`,
      {cause: error},
    );
  });
}

/** Writes the archive of a tree and its digest. The same files give the same bytes. */
async function pack(tree: string, folder: string): Promise<void> {
  const hash = createHash('sha256');
  let size_bytes = 0;
  const count = new Transform({
    transform(chunk, _, done) {
      hash.update(chunk);
      size_bytes += chunk.length;
      done(null, chunk);
    },
  });
  const packed = packedFiles(tree, await filesIn(tree));
  await pipeline(packed, count, createWriteStream(join(folder, ARCHIVE)));
  await writeFile(join(folder, FACTS), JSON.stringify({sha256: hash.digest('hex'), size_bytes}));
}

/** Removes what killed builds have left. */
async function removeUnfinished(): Promise<void> {
  await mkdir(environmentsFolder(), {recursive: true});
  for (const name of await readdir(environmentsFolder())) {
    const [, pid] = /\.unfinished\.(\d+)$/.exec(name) ?? [];
    if (pid && !isRunning(Number(pid)))
      await rm(join(environmentsFolder(), name), {recursive: true, force: true});
  }
}

/** Environments that stay: those used last, such as that of a deployment, of a local cloud and of another branch. */
const MOST_KEPT = 3;

/** Marks an environment as used now. A folder of another user keeps its time. */
export async function markUsed(folder: string): Promise<void> {
  const now = new Date();
  await utimes(folder, now, now).catch(() => {});
}

/**
 * Removes all but the environments used last, and returns their number. An unfinished one has another name, and stays. What cannot be
 * removed, or is removed by another process, fails no build.
 */
export async function removeUnused(environments: string): Promise<number> {
  const names = await readdir(environments).catch(() => []);
  const found = await Promise.all(
    names
      .filter(name => /^[0-9a-f]{16}$/.test(name))
      .map(async name => ({name, stats: await stat(join(environments, name)).catch(() => undefined)})),
  );
  const used = found.flatMap(({name, stats}) => (stats ? {name, used_ms: stats.mtimeMs} : []));
  let removed = 0;
  for (const {name} of used.sort((a, b) => b.used_ms - a.used_ms).slice(MOST_KEPT))
    await rm(join(environments, name), {recursive: true}).then(
      () => removed++,
      () => {},
    );
  return removed;
}
