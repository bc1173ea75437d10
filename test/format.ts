/** Formats all TypeScript and Python, and applies the fixes of the linters. */
import {fileURLToPath} from 'node:url';
import {pythonOf, type Run, runCommand} from './support/machine/process.ts';

const file = (path: string): string => fileURLToPath(new URL(path, import.meta.url));
const run: Run = (command, args, env = {}) => runCommand(command, args, env, console.log);

const python = await pythonOf(file('worker/requirements.lock'), run);
const outcomes = [
  await run(file('../node_modules/.bin/biome'), ['check', '--write', '.']),
  await run(python, ['-m', 'ruff', 'format', '--no-cache', '.']),
  await run(python, ['-m', 'ruff', 'check', '--no-cache', '--fix', '.']),
];
process.exitCode = outcomes.every(({code}) => code === 0) ? 0 : 1;
