/**
 * Measures the start of the command: `npm run bench:help [-- --rounds N]`. Runs `gleaner --help` and `node -e 0` in turns, and prints the
 * least and the median of both and the ratio of each pair.
 */
import {spawnSync} from 'node:child_process';
import {fileURLToPath} from 'node:url';
import {Command} from 'commander';

const COMMAND = fileURLToPath(new URL('../cli/gleaner.mjs', import.meta.url));
const {rounds} = new Command('bench:help')
  .option('--rounds <n>', 'pairs of starts', Number, 20)
  .parse()
  .opts<{rounds: number}>();

function milliseconds(args: string[]): number {
  const began = performance.now();
  const {status} = spawnSync(process.execPath, args, {stdio: 'ignore'});
  if (status !== 0) throw new Error(`node ${args.join(' ')} ended with ${status}`);
  return performance.now() - began;
}

const sorted = (values: number[]) => values.toSorted((one, other) => one - other);
const median = (values: number[]) => sorted(values)[Math.floor(values.length / 2)] ?? Number.NaN;

const pairs = Array.from({length: rounds}, () => ({
  help: milliseconds([COMMAND, '--help']),
  empty: milliseconds(['-e', '0']),
}));
const line = (name: string, values: number[]) =>
  `${name.padEnd(16)} ${Math.min(...values).toFixed(0)} ms at least, ${median(values).toFixed(0)} ms in the median`;
const ratios = pairs.map(({help, empty}) => help / empty);
console.log(
  line(
    'gleaner --help',
    pairs.map(({help}) => help),
  ),
);
console.log(
  line(
    'node -e 0',
    pairs.map(({empty}) => empty),
  ),
);
console.log(
  `ratio            ${median(ratios).toFixed(1)} (${Math.min(...ratios).toFixed(1)} to ${Math.max(...ratios).toFixed(1)}) in ${rounds} pairs`,
);
