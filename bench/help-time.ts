/**
 * Measures the start of the command: `npm run bench:help [-- --rounds N]`. Runs `gleaner --help` and `node -e 0` in turns, and prints the
 * times of both and the ratio of each pair.
 */
import {spawnSync} from 'node:child_process';
import {fileURLToPath} from 'node:url';
import {Command} from 'commander';
import {spread} from './spread.ts';

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

const pairs = Array.from({length: rounds}, () => ({
  help: milliseconds([COMMAND, '--help']),
  empty: milliseconds(['-e', '0']),
}));
const [helps, empties] = [pairs.map(({help}) => help), pairs.map(({empty}) => empty)];
console.log(`gleaner --help   ${spread(helps, 0)} ms`);
console.log(`node -e 0        ${spread(empties, 0)} ms`);
console.log(
  `ratio            ${spread(
    pairs.map(({help, empty}) => help / empty),
    1,
  )} in ${rounds} pairs`,
);
