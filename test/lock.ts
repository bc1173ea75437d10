/**
 * Writes the lock files of Python again, and the licences of their packages: `npm run lock`. Locked versions stay, unless an argument such as `--upgrade` changes them. A lock
 * on top of another one has that lock as its first line, and only the packages that the other lacks.
 */
import {readFileSync, writeFileSync} from 'node:fs';
import {dirname, relative} from 'node:path';
import {LOCK, TPU_LOCK, uvCache, WORKER_FOLDER, workerPython} from '../client/python/python.ts';
import {ROOT, type Run, runCommand} from './support/machine/process.ts';

const WORKER = 'worker-startup/requirements';
const LOCKS: {name: string; base?: string; overrides?: string; alone?: true}[] = [
  {name: 'worker-startup/uv-requirements'},
  // The documents in it need none of the other packages.
  {name: 'test/support/google/discovery', alone: true},
  {name: WORKER},
  {name: 'worker-startup/requirements-tpu', base: WORKER},
  {name: 'cli/run/export-requirements', base: WORKER},
  {name: 'cli/run/reference-requirements', base: WORKER},
  {name: 'test/worker/requirements', base: WORKER},
  {
    name: 'test/reference/requirements',
    base: 'test/worker/requirements',
    overrides: 'test/reference/overrides.txt',
  },
];

const SCRIPT =
  'source "$1/startup.sh"; umask 022; uv=$(ensure_uv "$1/uv-requirements.lock") || exit 1; shift; exec "$uv" pip compile "$@"';
const run: Run = (command, args, env = {}) => runCommand(command, args, env, () => {});

for (const {name, base, overrides, alone} of LOCKS) {
  const known = process.argv.includes('--upgrade') ? [] : ['--constraints', `${name}.lock`];
  const below = base ? ['--constraints', `${base}.lock`] : [];
  const instead = overrides ? ['--overrides', overrides] : [];
  const options = [
    '--quiet',
    '--universal',
    '--generate-hashes',
    '--python-version',
    '3.12',
    '--no-header',
    '--no-annotate',
    ...(alone ? ['--no-deps'] : []),
  ];
  const args = [
    '-c',
    SCRIPT,
    'bash',
    WORKER_FOLDER,
    ...options,
    ...below,
    ...instead,
    ...known,
    `${name}.in`,
  ];
  const {code, lines} = await run('bash', args, {UV_CACHE_DIR: uvCache()});
  if (code !== 0) throw new Error(`Failed to lock ${name}.in: ${lines.slice(-5).join(' | ')}`);
  const locked = packagesOf(lines);
  const others = base ? packagesIn(base) : new Map();
  const own = [...locked].filter(([package_name]) => !others.has(package_name));
  const head = [
    `# The packages of ${name.split('/').at(-1)}.in${base ? ', on top of another lock file' : ''}. Written by \`npm run lock\`.`,
    ...(base ? [`-r ${relative(dirname(name), `${base}.lock`)}`] : []),
  ];
  writeFileSync(`${ROOT}${name}.lock`, `${[...head, ...own.flatMap(([, block]) => block)].join('\n')}\n`);
  console.log(`${name}.lock: ${own.length} packages`);
}

const licences = await run(await workerPython(console.log, TPU_LOCK), [
  `${ROOT}test/worker/support/licences.py`,
  LOCK,
  TPU_LOCK,
]);
if (licences.code !== 0) throw new Error(`Failed to list licences: ${licences.lines.slice(-5).join(' | ')}`);
writeFileSync(`${ROOT}cli/build/python-licences.json`, `${licences.lines.join('\n')}\n`);

/** The packages of a lock file, and those of the lock below it. */
function packagesIn(name: string): Map<string, string[]> {
  const lines = readFileSync(`${ROOT}${name}.lock`, 'utf8').split('\n');
  const base = LOCKS.find(lock => lock.name === name)?.base;
  return new Map([...(base ? packagesIn(base) : []), ...packagesOf(lines)]);
}

/** Lines of each package, by its name. A package with several versions has one entry. */
function packagesOf(lines: readonly string[]): Map<string, string[]> {
  const packages = new Map<string, string[]>();
  let block: string[] = [];
  for (const line of lines) {
    const [, started] = /^([a-z0-9][a-z0-9._-]*)==/.exec(line) ?? [];
    if (started) {
      block = packages.get(started) ?? [];
      packages.set(started, block);
    }
    if (/^[a-z0-9 ]/.test(line)) block.push(line);
  }
  return packages;
}
