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
const TIMED = 'TIMEFORMAT="%U %S"; time "$@" 2>&1 >/dev/null';
const measured = new Map<string, number[]>();

function measure(name: string, args: string[]): void {
  const {status, stderr} = spawnSync('bash', ['-c', TIMED, '', process.execPath, ...args], {
    encoding: 'utf8',
  });
  if (status !== 0) throw new Error(`${name} ended with ${status}: ${stderr}`);
  const [user = Number.NaN, system = Number.NaN] = stderr.trim().split(' ').map(Number);
  measured.set(name, [...(measured.get(name) ?? []), user + system]);
}

for (let round = 0; round < rounds; round++) {
  measure('node -e 0', ['-e', '0']);
  measure('gleaner --help', [COMMAND, '--help']);
  for (const words of ['status', 'status demo', 'why demo', 'jobs list'])
    measure(`gleaner ${words}`, [COMMAND, ...words.split(' '), '--dir', dir]);
}
for (const [name, seconds] of measured) console.log(`${spread(seconds, 2)} s  ${name}`);
