/**
 * Measures the extractor: `npm run bench:extraction [-- NAME... --quick --rounds N]`.
 *
 * The Python environment has the libraries of the comparison (torch, transformers, SAELens, ...) from a lock file with hashes.
 */
import {spawnSync} from 'node:child_process';
import {fileURLToPath} from 'node:url';
import {WORKER_FOLDER, workerPython} from '../cli/python/python.ts';

const LOCK = fileURLToPath(new URL('../test/reference/requirements.lock', import.meta.url));
const HERE = fileURLToPath(new URL('.', import.meta.url));

const python = await workerPython(line => console.error(line), LOCK, 'with-builds');
const run = spawnSync(python, ['-m', 'extraction', ...process.argv.slice(2)], {
  env: {...process.env, PYTHONPATH: `${HERE}:${WORKER_FOLDER}`, PYTHONDONTWRITEBYTECODE: '1'},
  stdio: 'inherit',
});
process.exitCode = run.status ?? 1;
