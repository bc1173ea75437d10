/**
 * Prints the excerpt of `npm start` and the table of figures in README.md as Markdown:
 * `npm run readme:figures -- arc-agi-training.jsonl gsm8k-test.jsonl`. Each file of records adds a row. Run on two idle cores
 * with the packages in the cache. `--cold` adds a run with an empty cache, which downloads the packages.
 */
import {spawnSync} from 'node:child_process';
import {mkdtempSync, rmSync} from 'node:fs';
import {availableParallelism, tmpdir} from 'node:os';
import {basename, join} from 'node:path';
import {fileURLToPath} from 'node:url';

const MAIN = fileURLToPath(new URL('../cli/main.ts', import.meta.url));
const REAL_INPUT = ['--streams', '3', '--workers', '2', '--preempt', '2'];

const scratch = mkdtempSync(join(tmpdir(), 'gleaner-figures-'));

/** Runs a demo in a new folder and returns its standard output. */
function demo(args: string[], cache?: string): string {
  const dir = mkdtempSync(join(scratch, 'demo-'));
  const env = cache === undefined ? process.env : {...process.env, XDG_CACHE_HOME: cache};
  const {status, stdout} = spawnSync(process.execPath, [MAIN, 'demo', ...args, '--dir', dir], {
    env,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'inherit'],
    maxBuffer: 1 << 28,
  });
  rmSync(dir, {recursive: true, force: true});
  if (status !== 0) throw new Error(`Failed to run the demo ${args.join(' ')}: exit ${status}\n${stdout}`);
  return stdout;
}

/** Figures of a demo: `19 s: 100 samples, 59,064 tokens, 121 MB, 19 shards, 1 preemption`. */
function figures(output: string): string {
  const find = (pattern: RegExp) => {
    const match = pattern.exec(output);
    if (!match) throw new Error(`Failed to read the figures: the output lacks ${pattern}\n${output}`);
    return match.slice(1);
  };
  const [samples, tokens, megabytes] = find(/^(\d+) samples: .*; (\d+) tokens, ([\d.]+) MB$/m).map(Number);
  const [preemptions, seconds] = find(/^(\d+ preemptions?) injected.*, (\d+) s; /m);
  const shards = [...output.matchAll(/ stored exactly once in (\d+) shards/g)].reduce(
    (sum, [, count]) => sum + Number(count),
    0,
  );
  const comma = (value = 0) => Math.round(value).toLocaleString('en-US');
  return `${seconds} s: ${comma(samples)} samples, ${comma(tokens)} tokens, ${comma(megabytes)} MB, ${shards} shards, ${preemptions}`;
}

/** Timeline and result of a demo, without the bars and the counts of the streams. */
function excerpt(output: string): string {
  const lines = output
    .split('\n')
    .filter(line => /^\d\d:\d\d:\d\d {2}|^\d+ samples: |^verified: /.test(line));
  return lines.join('\n');
}

try {
  const args = process.argv.slice(2);
  const rows: [command: string, took: string][] = [];
  // The first demo fills the caches.
  demo([]);
  const plain = demo([]);
  rows.push(['`npm start`, packages and programs in the cache', figures(plain)]);
  if (args.includes('--cold'))
    rows.push(['`npm start` with an empty cache', figures(demo([], join(scratch, 'cache')))]);
  for (const file of args.filter(arg => arg !== '--cold'))
    rows.push([
      `\`npm start -- --input ${basename(file)} ${REAL_INPUT.join(' ')}\``,
      figures(demo(['--input', file, ...REAL_INPUT])),
    ]);
  console.log(`\`\`\`\n${excerpt(plain)}\n\`\`\`\n`);
  console.log(`On ${availableParallelism()} cores:\n\n| command | took |\n|---|---|`);
  for (const [command, took] of rows) console.log(`| ${command} | ${took} |`);
} finally {
  rmSync(scratch, {recursive: true, force: true});
}
