/** Runs every part of the tests and ends with one line over all of them: `N passed, N failed, N skipped`. */
import {spawn, spawnSync} from 'node:child_process';
import {createInterface} from 'node:readline';
import {fileURLToPath} from 'node:url';
import {environmentFolder, UV_CACHE, WORKER_FOLDER} from '../cli/python.ts';

type Counts = {passed: number; failed: number; skipped: number};

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const BIN = fileURLToPath(new URL('../node_modules/.bin/', import.meta.url));

/** Runs a command, shows what it prints, and answers its exit code and its lines. */
function run(
  command: string,
  args: string[],
  env: Record<string, string> = {},
): Promise<{code: number; lines: string[]}> {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, {
      cwd: ROOT,
      env: {...process.env, METADATA_SERVER_DETECTION: 'none', ...env},
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const lines: string[] = [];
    createInterface({input: child.stdout}).on('line', line => {
      lines.push(line);
      console.log(line);
    });
    child.once('error', reject);
    child.once('close', code => resolve({code: code ?? 1, lines}));
  });
}

/** One check that passes or fails as a whole. */
async function check(command: string, args: string[]): Promise<Counts> {
  const {code} = await run(command, args);
  return code === 0 ? {passed: 1, failed: 0, skipped: 0} : {passed: 0, failed: 1, skipped: 0};
}

/** Adds up what a runner says of itself; one that fails without a count has failed once. */
function counted(code: number, counts: Counts): Counts {
  return code !== 0 && counts.failed === 0 ? {...counts, failed: 1} : counts;
}

function numberBefore(lines: string[], pattern: RegExp): number {
  const match = lines.map(line => pattern.exec(line)).findLast(found => found !== null);
  return Number(match?.[1] ?? 0);
}

async function mocha(): Promise<Counts> {
  const {code, lines} = await run(process.execPath, [
    'node_modules/mocha/bin/mocha.js',
    '--no-color',
    'test/**/*.test.ts',
  ]);
  return counted(code, {
    passed: numberBefore(lines, /^ {2}(\d+) passing/),
    failed: numberBefore(lines, /^ {2}(\d+) failing/),
    skipped: numberBefore(lines, /^ {2}(\d+) pending/),
  });
}

async function pytest(): Promise<Counts> {
  const lock = `${ROOT}test/worker/requirements.lock`;
  const script = 'source "$1/startup.sh"; make_environment "$2" "$3"';
  const args = ['-c', script, 'bash', WORKER_FOLDER, await environmentFolder(lock), lock];
  const made = await run('bash', args, {UV_CACHE_DIR: UV_CACHE});
  const python = made.lines.at(-1);
  if (made.code !== 0 || !python) return {passed: 0, failed: 1, skipped: 0};
  const {code, lines} = await run(python, [
    '-m',
    'pytest',
    '-q',
    '-rs',
    '-p',
    'no:cacheprovider',
    // A process for each core; `worksteal`, because some tests take a thousand times as long as others.
    '--numprocesses=auto',
    '--dist=worksteal',
    'test/worker',
    'test/reader',
  ]);
  const summary = lines.slice(-1);
  return counted(code, {
    passed: numberBefore(summary, /(\d+) passed/),
    failed: numberBefore(summary, /(\d+) failed/) + numberBefore(summary, /(\d+) error/),
    skipped: numberBefore(summary, /(\d+) skipped/),
  });
}

async function shellcheck(): Promise<Counts> {
  if (spawnSync('shellcheck', ['--version']).error === undefined)
    return check('shellcheck', ['worker-startup/startup.sh', '.ci/run']);
  if (process.env.CI) throw new Error('shellcheck is missing, and CI needs it');
  console.log('skipped: shellcheck is not installed');
  return {passed: 0, failed: 0, skipped: 1};
}

const parts: [string, () => Promise<Counts>][] = [
  ['types', () => check(`${BIN}tsc`, ['--noEmit'])],
  ['lint', () => check(`${BIN}biome`, ['check', '--error-on-warnings', '.'])],
  ['shell scripts', shellcheck],
  ['mocha', mocha],
  ['pytest', pytest],
];

const total: Counts = {passed: 0, failed: 0, skipped: 0};
const chosen = process.argv.slice(2);
for (const [name, part] of parts) {
  if (chosen.length > 0 && !chosen.includes(name)) continue;
  console.log(`\n== ${name}`);
  const counts = await part().catch((error: Error) => {
    console.error(error.message);
    return {passed: 0, failed: 1, skipped: 0};
  });
  for (const key of ['passed', 'failed', 'skipped'] as const) total[key] += counts[key];
}
console.log(`\n${total.passed} passed, ${total.failed} failed, ${total.skipped} skipped`);
process.exitCode = total.failed > 0 || total.passed === 0 ? 1 : 0;
