/**
 * Compares the extractor with transformers, and the reader with torch, SAELens and dictionary_learning:
 * `npm run test:reference [-- --seed N]`. These libraries have their own Python environment. `-- --bf16` measures bf16 beside transformers;
 * `-- --make-golden [NAME ...]` makes the golden models of the tests anew, and `-- --make-sae-golden` the golden autoencoders.
 */
import {spawn} from 'node:child_process';
import {createInterface} from 'node:readline';
import {fileURLToPath} from 'node:url';
import {WORKER_FOLDER, workerPython} from '../../client/python/python.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const LOCK = fileURLToPath(new URL('requirements.lock', import.meta.url));

/** Runs a command, prints its output, and returns its exit code and its last line. */
function run(
  command: string,
  args: string[],
  env: Record<string, string>,
): Promise<{code: number; last: string}> {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, {
      cwd: ROOT,
      env: {...process.env, ...env},
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    let last = '';
    createInterface({input: child.stdout}).on('line', line => {
      last = line;
      console.log(line);
    });
    child.once('error', reject);
    child.once('close', code => resolve({code: code ?? 1, last}));
  });
}

const python = await workerPython(line => console.error(line), LOCK, 'with-builds');

// The comparison creates its models and downloads none.
const offline = {HF_HUB_OFFLINE: '1', PYTHONPATH: WORKER_FOLDER, PYTHONDONTWRITEBYTECODE: '1'};
const [first = '', ...others] = process.argv.slice(2);
const alone = {
  '--bf16': 'test/reference/bf16.py',
  '--make-golden': 'test/reference/make_golden.py',
  '--make-sae-golden': 'test/reference/make_sae_golden.py',
}[first];
process.exitCode = alone ? (await run(python, [alone, ...others], offline)).code : await compareAll();

async function compareAll(): Promise<number> {
  const compared = await run(python, ['test/reference/compare.py', ...process.argv.slice(2)], offline);
  const changed = await run(python, ['test/reference/other_values.py', ...process.argv.slice(2)], offline);
  const pytest = ['-m', 'pytest', '-q', '-rs', '-p', 'no:cacheprovider', 'test/reference'];
  const tested = await run(python, pytest, offline);
  return compared.code || changed.code || tested.code;
}
