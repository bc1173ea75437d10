/**
 * Runs a Python benchmark: `npm run bench:extraction [-- NAME... --quick --rounds N]`, and
 * `npm run bench:tpu [-- --json --model M --accelerator A --shape RxT]`.
 *
 * The environment of `extraction` has the libraries of the comparison (torch, transformers, SAELens, ...) from a lock file with
 * hashes. That of `tpu` has libtpu from the lock file of TPU VMs; no TPU is needed.
 */
import {spawnSync} from 'node:child_process';
import {fileURLToPath} from 'node:url';
import {TPU_LOCK, WORKER_FOLDER, workerPython} from '../cli/python/python.ts';

const HERE = fileURLToPath(new URL('.', import.meta.url));
const REFERENCE_LOCK = fileURLToPath(new URL('../test/reference/requirements.lock', import.meta.url));

const [module = '', ...args] = process.argv.slice(2);
const say = (line: string) => console.error(line);
const python = await (module === 'tpu'
  ? workerPython(say, TPU_LOCK)
  : workerPython(say, REFERENCE_LOCK, 'with-builds'));
const run = spawnSync(python, ['-m', module, ...args], {
  env: {
    ...process.env,
    PYTHONPATH: `${HERE}:${WORKER_FOLDER}`,
    PYTHONDONTWRITEBYTECODE: '1',
    JAX_PLATFORMS: 'cpu',
  },
  stdio: 'inherit',
});
process.exitCode = run.status ?? 1;
