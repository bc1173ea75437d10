import {spawn} from 'node:child_process';
import {createHash} from 'node:crypto';
import {readFile} from 'node:fs/promises';
import {homedir} from 'node:os';
import {dirname, join, resolve} from 'node:path';
import {fileURLToPath} from 'node:url';
import {CliError} from '../text/errors.ts';

export const WORKER_FOLDER = fileURLToPath(new URL('../../worker-startup', import.meta.url));

/** Cache of downloads and environments, shared by every local cloud of this user. */
export const cacheFolder = () => resolve(process.env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'gleaner');
export const uvCache = () => join(cacheFolder(), 'uv');
/** Compiled programs of the VMs of local clouds. */
export const jaxCache = () => process.env.JAX_COMPILATION_CACHE_DIR || join(cacheFolder(), 'jax');
/** Keeps bytecode outside of the sources, because the worker bundle packs their folder. Bytecode saves seconds at each start. */
const bytecode = () => ({PYTHONPYCACHEPREFIX: join(cacheFolder(), 'bytecode'), PYTHONDONTWRITEBYTECODE: ''});
/** JAX stores programs for another machine, but cannot load them. */
export const NO_JAX_CACHE = {JAX_COMPILATION_CACHE_DIR: ''};

/** Packages of a worker on this machine, without libtpu. */
export const LOCK = join(WORKER_FOLDER, 'requirements.lock');
export const UV_LOCK = join(WORKER_FOLDER, 'uv-requirements.lock');
/** Packages of a worker on a TPU VM: the TPU compiler is one of them, and needs no TPU. */
export const TPU_LOCK = join(WORKER_FOLDER, 'requirements-tpu.lock');

const environments = new Map<string, Promise<string>>();

/**
 * Path of the Python in the environment of a lock file, for this machine. Packages come as wheels; `with-builds` also builds packages
 * from source.
 */
export function workerPython(
  say: (line: string) => void,
  lock = LOCK,
  builds: 'with-builds' | 'without-builds' = 'without-builds',
): Promise<string> {
  const made =
    environments.get(lock) ??
    environmentFolder(lock).then(folder => callScript('make_environment', [folder, lock, builds], say));
  environments.set(lock, made);
  made.catch(() => environments.delete(lock)); // the next call tries again
  return made;
}

export async function environmentFolder(lock: string): Promise<string> {
  return join(cacheFolder(), `env-${await lockKey(lock)}`);
}

/** Key of the environment for a lock file: the start of its digest. */
export async function lockKey(lock: string): Promise<string> {
  return (await lockSha256(lock)).slice(0, 16);
}

/** Digest of a lock file, as the function `lock_sha256` of python-environment.sh computes it. */
export async function lockSha256(lock: string): Promise<string> {
  return createHash('sha256')
    .update(await lockText(lock))
    .digest('hex');
}

/** Text of a lock file, and of the lock files that its lines `-r FILE` name. */
export async function lockText(lock: string): Promise<string> {
  const text = await readFile(lock, 'utf8');
  const below = [...text.matchAll(/^-r (.+)$/gm)].map(([, file = '']) => lockText(join(dirname(lock), file)));
  return [text, ...(await Promise.all(below))].join('');
}

/** Calls a function of python-environment.sh. Returns the last line that it prints; `say` gets each line of its standard error. */
export async function callScript(
  name: string,
  args: readonly string[],
  say: (line: string) => void = () => {},
): Promise<string> {
  const script = 'source "$1"; shift; umask 022; "$@"';
  const call = [join(WORKER_FOLDER, 'startup.sh'), name, ...args];
  const child = spawn('bash', ['-c', script, 'bash', ...call], {
    env: {...process.env, UV_CACHE_DIR: uvCache()},
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const errors = collectLines(child.stderr, say);
  const printed = collectLines(child.stdout, () => {});
  const code = await exitCode(child);
  const last = (await printed).at(-1);
  if (code !== 0 || !last)
    throw new CliError(`Failed to prepare Python (exit ${code}): ${(await errors).slice(-5).join(' | ')}`);
  return last;
}

type PythonRun = {code: number; stdout: string[]; stderr: string[]};

/**
 * Runs a module of the worker package. `say` gets each line of its standard error, and `onLine` each of its standard output. `told`: its
 * standard input then ends, after a line if true. `signal` ends the process.
 */
export async function runWorkerModule(
  args: string[],
  env: Record<string, string>,
  say: (line: string) => void,
  lock = LOCK,
  onLine: (line: string) => void = () => {},
  {told, signal}: {told?: Promise<boolean> | undefined; signal?: AbortSignal} = {},
): Promise<PythonRun> {
  const python = await workerPython(say, lock);
  const child = spawn(python, ['-m', ...args], {
    cwd: WORKER_FOLDER,
    env: {...process.env, ...bytecode(), ...NO_JAX_CACHE, JAX_PLATFORMS: 'cpu', ...env},
    stdio: ['pipe', 'pipe', 'pipe'],
    signal,
  });
  // A module that has failed reads no line.
  child.stdin.on('error', () => {});
  void (told ?? Promise.resolve(false)).then(isTold => child.stdin.end(isTold ? '\n' : ''));
  const [stdout, stderr, code] = await Promise.all([
    collectLines(child.stdout, onLine),
    collectLines(child.stderr, say),
    exitCode(child),
  ]);
  // Without it, the last line would be one of progress.
  const {signalCode} = child;
  if (signalCode) stderr.push(`Python was ended by ${signalCode}${SIGNALS[signalCode] ?? ''}`);
  return {code, stdout, stderr};
}

/** What usually sends a signal that nobody typed. */
const SIGNALS: Partial<Record<NodeJS.Signals, string>> = {
  SIGBUS: ': its disk may be full',
  SIGKILL: ': this machine may have run out of memory',
};

function exitCode(child: ReturnType<typeof spawn>): Promise<number> {
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code, signal) => resolve(code ?? (signal ? 128 : 1)));
  });
}

async function collectLines(
  stream: NodeJS.ReadableStream,
  onLine: (line: string) => void,
): Promise<string[]> {
  const {createInterface} = await import('node:readline');
  const lines: string[] = [];
  for await (const line of createInterface({input: stream})) {
    lines.push(line);
    onLine(line);
  }
  return lines;
}
