/**
 * Prints the table of figures in README.md as Markdown:
 * `npm run readme:figures -- arc-agi-training.jsonl gsm8k-test.jsonl`. Each file of records adds a row. Run on two idle cores
 * with the packages in the cache. `--cold` adds a run with an empty cache, which downloads the packages.
 */
import {spawnSync} from 'node:child_process';
import {mkdtempSync, rmSync} from 'node:fs';
import {availableParallelism, tmpdir} from 'node:os';
import {basename, join} from 'node:path';
import {fileURLToPath} from 'node:url';
import type {Answers} from '../client/json/index.ts';

const MAIN = fileURLToPath(new URL('../cli/gleaner.mjs', import.meta.url));
const REAL_INPUT = ['--streams', '3', '--workers', '2', '--preempt', '2'];

const scratch = mkdtempSync(join(tmpdir(), 'gleaner-figures-'));

type Demo = Answers['demo'];

/** Runs a demo in a new folder and returns what it prints for programs. */
function demo(args: string[], cache?: string): Demo {
  const dir = mkdtempSync(join(scratch, 'demo-'));
  const env = cache === undefined ? process.env : {...process.env, XDG_CACHE_HOME: cache};
  const {status, stdout} = spawnSync(process.execPath, [MAIN, 'demo', ...args, '--dir', dir, '--json'], {
    env,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'ignore'],
    maxBuffer: 1 << 28,
  });
  rmSync(dir, {recursive: true, force: true});
  if (status !== 0) throw new Error(`Failed to run the demo ${args.join(' ')}: exit ${status}\n${stdout}`);
  return JSON.parse(stdout);
}

/** Figures of a demo: `13 s: 64 samples, 36,744 tokens, 75 MB, 18 shards, 1 preemption`. */
function figures({seconds, samples, tokens, bytes, shards, preemptions}: Demo): string {
  const comma = (value: number) => Math.round(value).toLocaleString('en-US');
  const work = `${comma(samples)} samples, ${comma(tokens)} tokens, ${comma(bytes / 1e6)} MB, ${shards} shards`;
  return `${seconds} s: ${work}, ${preemptions} preemption${preemptions === 1 ? '' : 's'}`;
}

try {
  const args = process.argv.slice(2);
  const rows: [command: string, took: string][] = [];
  // The first demo fills the caches.
  demo([]);
  rows.push(['`npm start`, packages and programs in the cache', figures(demo([]))]);
  if (args.includes('--cold'))
    rows.push(['`npm start` with an empty cache', figures(demo([], join(scratch, 'cache')))]);
  for (const file of args.filter(arg => arg !== '--cold'))
    rows.push([
      `\`npm start -- --input ${basename(file)} ${REAL_INPUT.join(' ')}\``,
      figures(demo(['--input', file, ...REAL_INPUT])),
    ]);
  console.log(`On ${availableParallelism()} cores:\n\n| command | took |\n|---|---|`);
  for (const [command, took] of rows) console.log(`| ${command} | ${took} |`);
} finally {
  rmSync(scratch, {recursive: true, force: true});
}
