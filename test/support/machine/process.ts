/** Commands as the tests run them: their lines in order of arrival, their exit code, and the Python environments. */
import {spawn} from 'node:child_process';
import {join} from 'node:path';
import {createInterface} from 'node:readline';
import {fileURLToPath} from 'node:url';
import {cacheFolder, environmentFolder, uvCache, WORKER_FOLDER} from '../../../client/python/python.ts';

export const ROOT = fileURLToPath(new URL('../../..', import.meta.url));

/** Programs that Node, Python and JAX compile once for all tests and the next run of them: tests start hundreds of processes. */
const COMPILED = {
  NODE_COMPILE_CACHE: join(cacheFolder(), 'test', 'compiled'),
  PYTHONDONTWRITEBYTECODE: '',
  PYTHONPYCACHEPREFIX: join(cacheFolder(), 'test', 'bytecode'),
  JAX_COMPILATION_CACHE_DIR: join(cacheFolder(), 'test', 'jax'),
};

/** The command as npm links it. Its kept file loads in half of the time. */
export const GLEANER = join(ROOT, 'cli/gleaner.mjs');

export type Outcome = {code: number; lines: string[]};
export type Run = (command: string, args: string[], env?: Record<string, string>) => Promise<Outcome>;

/** Runs a command in the repository and gives each line of its stdout and stderr to `note`. */
export function runCommand(
  command: string,
  args: string[],
  env: Record<string, string>,
  note: (line: string) => void,
): Promise<Outcome> {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, {
      cwd: ROOT,
      env: {...process.env, METADATA_SERVER_DETECTION: 'none', ...COMPILED, ...env},
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const lines: string[] = [];
    createInterface({input: child.stdout}).on('line', line => {
      lines.push(line);
      note(line);
    });
    createInterface({input: child.stderr}).on('line', note);
    child.once('error', reject);
    child.once('close', code => resolve({code: code ?? 1, lines}));
  });
}

const environments = new Map<string, Promise<string>>();

/** The interpreter of the environment that a lock file describes, made once by the worker's startup script. */
export function pythonOf(lock: string, run: Run): Promise<string> {
  const python = environments.get(lock) ?? makeEnvironment(lock, run);
  environments.set(lock, python);
  return python;
}

async function makeEnvironment(lock: string, run: Run): Promise<string> {
  const script = 'source "$1/startup.sh"; make_environment "$2" "$3"';
  const args = ['-c', script, 'bash', WORKER_FOLDER, await environmentFolder(lock), lock];
  const {code, lines} = await run('bash', args, {UV_CACHE_DIR: uvCache()});
  const path = lines.at(-1);
  if (code !== 0 || !path) throw new Error(`Failed to make an environment from ${lock}: see the lines above`);
  return path;
}
