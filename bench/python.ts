/**
 * Runs a Python benchmark: `npm run bench:extraction [-- NAME... --quick --rounds N --lens-4]`, `npm run bench:host [-- CASE... --json --quick]`
 * and `npm run bench:tpu [-- --json --model M --accelerator A --search --limits]`.
 *
 * The environment of `extraction` has the libraries of the comparison (torch, transformers, SAELens, ...) from a lock file with
 * hashes, WebDataset, and TransformerLens 4 in place of 3 with `--lens-4`. That of `host` is the worker's. That of `tpu` has libtpu from the lock file of TPU VMs; no TPU is needed.
 */
import {spawnSync} from 'node:child_process';
import {fileURLToPath} from 'node:url';
import {TPU_LOCK, WORKER_FOLDER, workerPython} from '../client/python/python.ts';

const HERE = fileURLToPath(new URL('.', import.meta.url));
const REFERENCE_LOCK = fileURLToPath(new URL('../test/reference/requirements.lock', import.meta.url));

const SITE_PACKAGES = "import sysconfig; print(sysconfig.get_path('purelib'))";

const [module = '', ...given] = process.argv.slice(2);
const args = given.filter(arg => arg !== '--lens-4');
const say = (line: string) => console.error(line);
const environments: Record<string, () => Promise<string>> = {
  extraction: () => workerPython(say, REFERENCE_LOCK, 'with-builds'),
  host: () => workerPython(say),
  tpu: () => workerPython(say, TPU_LOCK),
};
const make = environments[module];
if (!make)
  throw new Error(
    `Failed to run the benchmark ${module}: name one of ${Object.keys(environments).join(', ')}`,
  );
const python = await make();
const folders = [HERE, WORKER_FOLDER];
const beside = [
  ...(module === 'extraction' ? ['webdataset'] : []),
  ...(args.length < given.length ? ['lens-4'] : []),
];
for (const name of beside) {
  const lock = fileURLToPath(new URL(`extraction/${name}.lock`, import.meta.url));
  const found = spawnSync(await workerPython(say, lock), ['-c', SITE_PACKAGES], {encoding: 'utf8'});
  folders.unshift(found.stdout.trim());
}
const run = spawnSync(python, ['-m', module, ...args], {
  env: {
    ...process.env,
    PYTHONPATH: folders.join(':'),
    PYTHONDONTWRITEBYTECODE: '1',
    JAX_PLATFORMS: 'cpu',
  },
  stdio: 'inherit',
});
process.exitCode = run.status ?? 1;
