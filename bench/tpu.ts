/**
 * Judges the extractor's program by the TPU compiler: `npm run bench:tpu [-- --json --model M --accelerator A --shape RxT]`.
 *
 * The Python environment has libtpu from the lock file of TPU VMs; no TPU is needed.
 */
import {spawnSync} from 'node:child_process';
import {fileURLToPath} from 'node:url';
import {TPU_LOCK, WORKER_FOLDER, workerPython} from '../cli/python/python.ts';

const HERE = fileURLToPath(new URL('.', import.meta.url));

const python = await workerPython(line => console.error(line), TPU_LOCK);
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
