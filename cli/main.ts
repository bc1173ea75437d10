import {EventEmitter} from 'node:events';
import type {Command} from 'commander';
import {hasProxy} from '../emulator/http/proxies.ts';
import {gleanerProgram} from './program.ts';
import {errorText} from './terminal/error-text.ts';
import {Interrupted, UsageError} from './terminal/errors.ts';
import {complain, printJson} from './terminal/output.ts';

// Google's storage client adds listeners to a stream with each piece of an object, and Node would warn of them.
EventEmitter.defaultMaxListeners = 0;

// A reader such as `head` may end before the output does. The code is that of a process that SIGPIPE ended.
for (const stream of [process.stdout, process.stderr])
  stream.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') throw error;
    process.exit(141);
  });

// Words behind -- belong to another command.
const wantsJson = process.argv.join('\0').split('\0--\0')[0]?.split('\0').includes('--json') ?? false;

const program = gleanerProgram();
exitByCode(program);

try {
  if (hasProxy(process.env)) (await import('./proxies.ts')).useProxies(process.env);
  // A name of commands alone asks for their help.
  const [name, ...others] = process.argv.slice(2);
  const group = name === undefined ? program : program.commands.find(command => command.name() === name);
  if (others.length === 0 && group !== undefined && group.commands.length > 0) group.outputHelp();
  else await program.parseAsync();
} catch (error) {
  const text = await errorText(error as NodeJS.ErrnoException);
  if (wantsJson) printJson<'failure'>({error: text ?? String(error)});
  for (const line of `gleaner: ${text ?? (error as Error).stack ?? error}`.split('\n')) complain(line);
  process.exitCode = error instanceof Interrupted ? 130 : error instanceof UsageError ? 2 : 1;
}

/** Exit 2: the command line is invalid. Exit 1: the command failed, or its answer is negative. */
function exitByCode(command: Command): void {
  command.exitOverride(({exitCode, message}) => {
    if (exitCode === 0) process.exit(0);
    if (wantsJson) printJson<'failure'>({error: message.replace(/^error: /, '')});
    process.exit(2);
  });
  for (const child of command.commands) exitByCode(child);
}
