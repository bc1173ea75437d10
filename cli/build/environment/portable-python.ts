/** A CPython that starts from any folder. */
import {execFile} from 'node:child_process';
import {existsSync, lstatSync} from 'node:fs';
import {cp, mkdir, readFile, realpath, rm, writeFile} from 'node:fs/promises';
import {basename, dirname, isAbsolute, join, relative} from 'node:path';
import {promisify} from 'node:util';
import {cacheFolder, callScript} from '../../../client/python/python.ts';
import {CliError} from '../../../client/text/errors.ts';
import {filesIn} from '../../python/bundle.ts';
import {readElf, whyUnportable, writeRunpath} from './portable.ts';

const run = promisify(execFile);

/** The Python that the locked uv downloads, with a digest that uv knows. */
export const PINNED = 'cpython-3.12.16-linux-x86_64-gnu';
const downloads = () => join(cacheFolder(), 'python');

/** TPU VMs have Linux on x86_64. */
export const RUNS_HERE = process.platform === 'linux' && process.arch === 'x64';

export type Python = {
  /** Differs between builds. */
  identity: string;
  root: string;
  /** Such as `python3.12`. */
  name: string;
};

/** Parts of the standard library without use on a TPU VM. */
const UNUSED =
  /^(__pycache__|config-.*|dist-packages|idlelib|site-packages|test|tests|tkinter|turtledemo|EXTERNALLY-MANAGED|.*\.(a|pyc))$/;

/** The downloaded Python, if it is there. */
export function downloadedPython(): Python | undefined {
  const root = join(downloads(), PINNED);
  return existsSync(root) ? {identity: PINNED, root, name: 'python3.12'} : undefined;
}

/** Downloads the Python with uv. Throws uv's last line. */
export async function downloadPython(uv: string): Promise<Python> {
  const args = ['python', 'install', '--no-bin', '--no-progress', '--install-dir', downloads(), PINNED];
  await run(uv, args, {env: {UV_HTTP_RETRIES: '1', ...process.env}}).catch(error => {
    throw new Error(lastLine(error.stderr), {cause: error});
  });
  const python = downloadedPython();
  if (!python) throw new Error(`uv put no ${PINNED} into ${downloads()}`);
  return python;
}

function lastLine(text: unknown): string {
  return (
    String(text)
      .trim()
      .split('\n')
      .at(-1)
      ?.replace(/^ *cause: /, '') ?? ''
  );
}

/** The first Python from 3.12 on of this machine, where it can run on a TPU VM; undefined without one. */
export async function pythonHere(): Promise<Python | undefined> {
  if (!RUNS_HERE) return undefined;
  const found = await callScript('find_python', ['sys.version_info >= (3, 12)']).catch(() => undefined);
  if (!found) return undefined;
  const {stdout} = await run(found, ['-I', '-c', 'import sys; print(sys.version)']);
  const program = await realpath(found);
  return {identity: stdout.trim(), root: dirname(dirname(program)), name: basename(program)};
}

/**
 * Copies a Python without packages. Every name of the program is a file of its own, because the archive has no links. Says which modules
 * stay behind, because they need libraries that a TPU VM may lack.
 */
export async function copyPython(
  {root, name}: Python,
  folder: string,
  say: (line: string) => void,
): Promise<void> {
  const program = join(root, 'bin', name);
  await mkdir(join(folder, 'bin'), {recursive: true});
  for (const copy of ['python', 'python3']) await cp(program, join(folder, 'bin', copy));
  const own = new Set<string>();
  for (const library of readElf(program)?.needed ?? []) {
    if (!library.startsWith('libpython')) continue;
    own.add(library);
    await cp(await realpath(join(root, 'lib', library)), join(folder, 'lib', library));
  }
  for (const part of [join('lib', name), join('include', name)])
    await cp(join(root, part), join(folder, part), {recursive: true, filter: isUsed});
  await forgetPaths(join(folder, 'lib', name), root);
  const left: string[] = [];
  for (const file of await filesIn(folder)) {
    const path = join(folder, file);
    const elf = readElf(path);
    if (!elf) continue;
    if (file.includes('/lib-dynload/') && whyUnportable(elf, own)) {
      left.push(basename(file).split('.')[0] ?? file);
      await rm(path);
    } else if (elf.runpath && isAbsolute(elf.runpath.text)) {
      const libraries = relative(dirname(path), join(folder, 'lib'));
      writeRunpath(path, elf.runpath, libraries ? `$ORIGIN/${libraries}` : '$ORIGIN');
    }
  }
  if (left.length > 0) say(`The environment has no modules ${left.join(', ')}: they need further libraries`);
}

function isUsed(path: string): boolean {
  return !UNUSED.test(basename(path)) && !lstatSync(path).isSymbolicLink();
}

/** Removes the folder of the build from the settings that Python keeps. */
async function forgetPaths(library: string, root: string): Promise<void> {
  const settings = (await filesIn(library)).filter(file =>
    /^(_sysconfigdata.*\.py|build-details\.json)$/.test(file),
  );
  if (settings.length === 0) throw new CliError(`Failed to copy ${root}: it has no standard library`);
  for (const file of settings) {
    const text = await readFile(join(library, file), 'utf8');
    const real = await realpath(root);
    await writeFile(join(library, file), text.replaceAll(root, '/install').replaceAll(real, '/install'));
  }
}
