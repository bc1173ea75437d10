/** The parts of the tests, slowest first, and the tiers that run them: fast in a minute, full before a merge, long at night. */
import {spawnSync} from 'node:child_process';
import {createHash} from 'node:crypto';
import {join} from 'node:path';
import {cacheFolder, environmentFolder, NO_JAX_CACHE} from '../client/python/python.ts';
import {type Outcome, pythonOf, ROOT, type Run} from './support/machine/process.ts';

const TIERS = ['fast', 'full', 'long'] as const;
export type Tier = (typeof TIERS)[number];
export type Counts = {passed: number; failed: number; skipped: number};
export type Part = {
  name: string;
  tiers: readonly Tier[];
  /** The tier fast runs it by its name alone. */
  isAsked?: true;
  run: (run: Run, tier: Tier) => Promise<Counts>;
};

export const isTier = (text: string): text is Tier => TIERS.some(tier => tier === text);

const SHELL_SCRIPTS = ['worker-startup/startup.sh', 'worker-startup/python-environment.sh', '.ci/run'];
const BIN = `${ROOT}node_modules/.bin/`;
const LOCK = `${ROOT}test/worker/requirements.lock`;
/** The compiler checks again only what has changed since its last run in this folder, and what depends on that. */
const KEPT_TYPES = join(
  cacheFolder(),
  'test',
  `types-${createHash('sha256').update(ROOT).digest('hex').slice(0, 16)}.tsbuildinfo`,
);
const BEFORE_MERGE: Tier[] = ['fast', 'full'];
const SLOW: Tier[] = ['full', 'long'];
const atOnce = (files: number) => ['--parallel', '--jobs', String(files)];
/** Marks in titles of tests that a tier leaves out, because they take seconds or minutes. */
const LEFT_OUT: Record<Tier, string | undefined> = {fast: '@full|@long', full: '@long', long: undefined};
/** Folders of mocha with a part of their own; every other test file belongs to the part `unit`. */
const OWN_PART = [
  'contract',
  'emulator',
  'simulation',
  'e2e',
  'terraform',
  'unit/{cli,client}',
  'unit/dashboard',
];

export const PARTS: Part[] = [
  {name: 'e2e', tiers: SLOW, run: mocha(testsOf('e2e'), ...atOnce(2))},
  {name: 'simulation', tiers: SLOW, run: mocha(testsOf('simulation'))},
  {name: 'pytest', tiers: [...TIERS], run: pytest},
  {name: 'emulator', tiers: SLOW, run: mocha(testsOf('emulator'), ...atOnce(2))},
  // Most contracts wait for repeated calls.
  {name: 'contract', tiers: [...TIERS], run: mocha(testsOf('contract'), ...atOnce(3))},
  {name: 'unit', tiers: [...TIERS], run: unit},
  {
    name: 'commands',
    tiers: [...TIERS],
    isAsked: true,
    run: mocha(testsOf('unit/{cli,client}'), ...atOnce(2)),
  },
  {name: 'pages', tiers: [...TIERS], isAsked: true, run: mocha(testsOf('unit/dashboard'), ...atOnce(2))},
  {name: 'terraform', tiers: SLOW, run: terraform},
  {name: 'tpu-program', tiers: SLOW, run: tpuProgram},
  {
    name: 'types',
    tiers: BEFORE_MERGE,
    run: check(`${BIN}tsc`, '--noEmit', '--incremental', '--tsBuildInfoFile', KEPT_TYPES),
  },
  {name: 'lines', tiers: BEFORE_MERGE, run: check(process.execPath, 'test/line-budget.ts')},
  {name: 'python-types', tiers: ['full'], run: pyrefly},
  {name: 'lint', tiers: ['full'], run: check(`${BIN}biome`, 'check', '--error-on-warnings', '.')},
  {name: 'python-lint', tiers: ['full'], run: ruff},
  {name: 'shell-lint', tiers: ['full'], run: shellcheck},
  {
    name: 'control-plane-cost',
    tiers: ['long'],
    run: check(process.execPath, 'bench/control-plane.ts', '--limits'),
  },
  {name: 'tpu-speed', tiers: ['long'], run: check(process.execPath, 'bench/python.ts', 'tpu', '--limits')},
  {name: 'reference', tiers: ['long'], run: check(process.execPath, 'test/reference/run.ts')},
];

/** How much a tier tries where a test repeats itself; the defaults in the test files are those of full. */
const EFFORT: Record<Tier, Record<string, string>> = {
  fast: {},
  full: {},
  long: {
    GLEANER_CALLS: '1',
    GLEANER_CONDITION_WORLDS: '200',
    GLEANER_CRASHES: '6',
    GLEANER_DELIVERIES: '1',
    GLEANER_KILLS: '60',
    GLEANER_MIXED: '4',
    GLEANER_ORDERS: '300',
    GLEANER_PAIRS: '101',
    GLEANER_ROUNDS: '4',
    GLEANER_SIMULATION_PAIRS: '300',
    GLEANER_SIMULATION_SEEDS: '20000',
    GLEANER_STORIES: '12',
  },
};

function testsOf(folder: string): string {
  return `test/${folder}/**/*.test.ts`;
}

function mocha(tests: string, ...options: string[]): Part['run'] {
  const reporter = ['--reporter', './test/support/reporter.ts'];
  const command = ['node_modules/mocha/bin/mocha.js', '--no-color', tests, ...reporter, ...options];
  return async (run, tier) => {
    const left = LEFT_OUT[tier];
    const chosen = left ? [...command, '--grep', left, '--invert'] : command;
    const {code, lines} = await run(process.execPath, chosen, EFFORT[tier]);
    return counted(code, {
      passed: numberBefore(lines, /^ {2}(\d+) passing/),
      failed: numberBefore(lines, /^ {2}(\d+) failing/),
      skipped: numberBefore(lines, /^ {2}(\d+) pending/),
    });
  };
}

function unit(run: Run, tier: Tier): Promise<Counts> {
  const left = OWN_PART.flatMap(folder => ['--ignore', testsOf(folder)]);
  return mocha(testsOf('**'), ...atOnce(2), ...left)(run, tier);
}

/** A command that passes or fails as a whole. */
function check(command: string, ...args: string[]): Part['run'] {
  return async (run, tier) => wholly(await run(command, args, EFFORT[tier]));
}

function wholly(...outcomes: Outcome[]): Counts {
  const passed = outcomes.filter(({code}) => code === 0).length;
  return {passed, failed: outcomes.length - passed, skipped: 0};
}

/** A runner that fails without a count of failures has failed once. */
function counted(code: number, counts: Counts): Counts {
  return code !== 0 && counts.failed === 0 ? {...counts, failed: 1} : counts;
}

function numberBefore(lines: string[], pattern: RegExp): number {
  const match = lines.map(line => pattern.exec(line)).findLast(found => found !== null);
  return Number(match?.[1] ?? 0);
}

/** LLVM optimizes no program: on CPUs the tests compile for longer than they compute. The tier long tests the optimized programs. */
const QUICK_COMPILE = {
  XLA_FLAGS: '--xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1',
};

const MARKS: Record<Tier, string> = {fast: 'not slow and not long', full: 'not long', long: ''};

async function pytest(run: Run, tier: Tier): Promise<Counts> {
  const options = ['-q', '-rs', '--durations=10', '-m', MARKS[tier]];
  // Two processes, so that pytest is not the part that everything waits for; `worksteal`, because some tests take a thousand times as long as
  // others. In the tier fast other parts are as long, and a second process would start, import JAX and collect the tests again.
  const spread = tier === 'fast' ? ['-p', 'no:xdist'] : ['--numprocesses=2', '--dist=worksteal'];
  const command = ['-m', 'pytest', ...options, ...spread, 'test/worker', 'test/reader'];
  // Compiled programs are kept for the next run, for as long as the lock file is the same.
  const kept = join(cacheFolder(), 'test', (await environmentFolder(LOCK)).slice(-16));
  const {code, lines} = await run(await pythonOf(LOCK, run), command, {
    ...EFFORT[tier],
    ...(tier === 'long' ? {} : QUICK_COMPILE),
    GLEANER_TEST_CACHE: kept,
  });
  const summary = lines.slice(-1);
  return counted(code, {
    passed: numberBefore(summary, /(\d+) passed/),
    failed: numberBefore(summary, /(\d+) failed/) + numberBefore(summary, /(\d+) error/),
    skipped: numberBefore(summary, /(\d+) skipped/),
  });
}

/** The TPU compiler compiles the extractor's program; no TPU is needed. */
async function tpuProgram(run: Run, tier: Tier): Promise<Counts> {
  const python = await pythonOf(`${ROOT}worker-startup/requirements-tpu.lock`, run);
  return wholly(await run(python, ['test/tpu/compile_program.py', tier], NO_JAX_CACHE));
}

async function ruff(run: Run): Promise<Counts> {
  const python = await pythonOf(LOCK, run);
  const format = await run(python, ['-m', 'ruff', 'format', '--check', '--no-cache', '.']);
  return wholly(format, await run(python, ['-m', 'ruff', 'check', '--no-cache', '.']));
}

async function pyrefly(run: Run): Promise<Counts> {
  const python = await pythonOf(LOCK, run);
  return wholly(await run(python, ['-m', 'pyrefly', 'check', '--python-interpreter-path', python]));
}

async function shellcheck(run: Run): Promise<Counts> {
  if (spawnSync('shellcheck', ['--version']).error === undefined)
    return wholly(await run('shellcheck', SHELL_SCRIPTS));
  if (process.env.CI) throw new Error('shellcheck is missing, and CI needs it');
  await run('echo', ['skipped: shellcheck is not installed']);
  return {passed: 0, failed: 0, skipped: 1};
}

/** The tests of `terraform/tests`, and the tests that read its resources. */
async function terraform(run: Run, tier: Tier): Promise<Counts> {
  if (spawnSync('terraform', ['-version']).error !== undefined) {
    if (process.env.CI) throw new Error('terraform is missing, and CI needs it');
    await run('echo', ['skipped: terraform is not installed']);
    return {passed: 0, failed: 0, skipped: 1};
  }
  // Terraform holds little memory here, and its garbage collector takes a quarter of the time of the tests at its usual rate.
  const quick: Run = (command, args, env) => run(command, args, {GOGC: '800', ...env});
  const {code, lines} = await quick(process.execPath, ['test/terraform/run.ts']);
  const own = counted(code, {
    passed: numberBefore(lines, /(\d+) passed/),
    failed: numberBefore(lines, /(\d+) failed/),
    skipped: 0,
  });
  const read = await mocha(testsOf('terraform'))(quick, tier);
  return {passed: own.passed + read.passed, failed: own.failed + read.failed, skipped: read.skipped};
}
