/**
 * Measures what a command costs before it says anything: `npm run bench:help [-- --rounds N] [--dir DIR]`. Runs `node -e 0`, the help, and
 * commands on the local cloud in DIR that has the run `demo`, in turns. Prints the seconds of a core that each took.
 */
import {spawnSync} from 'node:child_process';
import {fileURLToPath} from 'node:url';
import {Command} from 'commander';
import {spread} from './spread.ts';

const COMMAND = fileURLToPath(new URL('../cli/gleaner.mjs', import.meta.url));
const {rounds, dir} = new Command('bench:help')
  .option('--rounds <n>', 'starts of each command', Number, 10)
  .option('--dir <dir>', 'folder of a running local cloud', '.gleaner/demo')
  .parse()
  .opts<{rounds: number; dir: string}>();
const onCloud = ['status', 'status demo', 'why demo', 'jobs list'].map(words => `${words} --dir ${dir}`);
const measured = new Map(
  ['-e 0', ...['--help', ...onCloud].map(words => `${COMMAND} ${words}`)].map(each => [each, [] as number[]]),
);

const TIMED = 'TIMEFORMAT="%U %S"; time "$@" 2>&1 >/dev/null';

function coreSeconds(args: string[]): number {
  const {status, stderr} = spawnSync('bash', ['-c', TIMED, 'bash', process.execPath, ...args], {
    encoding: 'utf8',
  });
  if (status !== 0) throw new Error(`node ${args.join(' ')} ended with ${status}: ${stderr}`);
  const [user = Number.NaN, system = Number.NaN] = stderr.trim().split(' ').map(Number);
  return user + system;
}

for (let round = 0; round < rounds; round++)
  for (const [words, seconds] of measured) seconds.push(coreSeconds(words.split(' ')));
for (const [words, seconds] of measured)
  console.log(
    `${spread(seconds, 2)} s  node ${words.replace(`${COMMAND} `, 'gleaner ').replace(` --dir ${dir}`, '')}`,
  );
