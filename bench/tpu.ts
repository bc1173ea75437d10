/**
 * Judges the extractor's program by the TPU compiler: `npm run bench:tpu [-- --json --model M --accelerator A --shape RxT]`.
 *
 * The Python environment has libtpu from the lock file of TPU VMs; no TPU is needed.
 */
import {spawnSync} from 'node:child_process';
import {fileURLToPath} from 'node:url';
import {environmentFolder, UV_CACHE, WORKER_FOLDER} from '../cli/python.ts';

const LOCK = `${WORKER_FOLDER}/requirements-tpu.lock`;
const HERE = fileURLToPath(new URL('.', import.meta.url));

const made = spawnSync(
  'bash',
  [
    '-c',
    'source "$1/startup.sh"; make_environment "$2" "$3"',
    'bash',
    WORKER_FOLDER,
    await environmentFolder(LOCK),
    LOCK,
  ],
  {env: {...process.env, UV_CACHE_DIR: UV_CACHE}, stdio: ['ignore', 'pipe', 'inherit'], encoding: 'utf8'},
);
const python = made.stdout.trim().split('\n').at(-1);
if (made.status !== 0 || !python)
  throw new Error(`Failed to make the environment of ${LOCK}: see the messages above`);
const run = spawnSync(python, ['-m', 'tpu', ...process.argv.slice(2)], {
  env: {
    ...process.env,
    PYTHONPATH: `${HERE}:${WORKER_FOLDER}`,
    PYTHONDONTWRITEBYTECODE: '1',
    JAX_PLATFORMS: 'cpu',
  },
  stdio: 'inherit',
});
process.exitCode = run.status ?? 1;
