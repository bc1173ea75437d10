import {spawn} from 'node:child_process';
import {homedir} from 'node:os';
import {join} from 'node:path';
import {fileURLToPath} from 'node:url';
import {CliError} from './errors.ts';

export const WORKER_FOLDER = fileURLToPath(new URL('../worker-startup', import.meta.url));

/** Downloads and environments are shared by every local cloud of this user, as a package mirror near the VMs would be. */
export const CACHE = join(process.env.XDG_CACHE_HOME ?? join(homedir(), '.cache'), 'gleaner');
export const UV_CACHE = join(CACHE, 'uv');

let environment: Promise<string> | undefined;

/** The Python of the worker's environment, made by the function of `startup.sh` that makes it on a TPU VM. */
export function workerPython(say: (line: string) => void): Promise<string> {
  environment ??= makeEnvironment(say);
  return environment;
}

async function makeEnvironment(say: (line: string) => void): Promise<string> {
  const script = 'source "$1/startup.sh"; make_environment "$2" "$1/requirements.lock"';
  const child = spawn('bash', ['-c', script, 'bash', WORKER_FOLDER, CACHE], {
    env: {...process.env, UV_CACHE_DIR: UV_CACHE},
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const said = collectLines(child.stderr, say);
  const printed = collectLines(child.stdout, () => {});
  const code = await exitCode(child);
  const python = (await printed).at(-1);
  if (code !== 0 || !python)
    throw new CliError(
      `Failed to make the Python environment in ${CACHE} (exit ${code}): ${(await said).slice(-5).join(' | ')}`,
    );
  return python;
}

export type PythonRun = {code: number; stdout: string[]; stderr: string[]};

/** Runs a module of the worker package, giving its stderr lines to `say` as they come. */
export async function runWorkerModule(
  args: string[],
  env: Record<string, string>,
  say: (line: string) => void,
): Promise<PythonRun> {
  const python = await workerPython(say);
  const child = spawn(python, ['-m', ...args], {
    cwd: WORKER_FOLDER,
    env: {...process.env, PYTHONDONTWRITEBYTECODE: '1', ...env},
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const [stdout, stderr, code] = await Promise.all([
    collectLines(child.stdout, () => {}),
    collectLines(child.stderr, say),
    exitCode(child),
  ]);
  return {code, stdout, stderr};
}

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
