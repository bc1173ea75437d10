/** One command line of `gleaner`: its command, its errors and its exit code. */
import {type Command, CommanderError} from 'commander';
import {Interrupted, UsageError} from '../client/text/errors.ts';
import {complain, printJson} from '../client/text/output.ts';
import {sourceStack} from '../emulator/functions/one-file.ts';
import {hasProxy} from '../emulator/http/proxies.ts';
import {gleanerProgram} from './program.ts';
import {errorText} from './terminal/error-text.ts';

/** Runs the words behind `gleaner`. Exit code 2: the words are invalid. Exit code 1: the command failed, or its answer is negative. */
export async function runCommandLine(words: readonly string[]): Promise<void> {
  const program = gleanerProgram();
  throwErrors(program);
  try {
    if (hasProxy(process.env)) (await import('../client/google/proxies.ts')).useProxies(process.env);
    // A name of commands alone asks for their help.
    const [name, ...others] = words;
    const group = name === undefined ? program : program.commands.find(command => command.name() === name);
    if (others.length === 0 && group !== undefined && group.commands.length > 0) group.outputHelp();
    else await program.parseAsync(words, {from: 'user'});
  } catch (error) {
    process.exitCode = await report(error as Error, wantsJson(words));
  }
}

/** Words behind -- belong to another command. */
function wantsJson(words: readonly string[]): boolean {
  const end = words.indexOf('--');
  return (end < 0 ? words : words.slice(0, end)).includes('--json');
}

/** Commander ends the process by default. */
function throwErrors(command: Command): void {
  command.exitOverride();
  for (const child of command.commands) throwErrors(child);
}

/** Prints an error, and returns the exit code. Commander has printed its own errors. */
async function report(error: Error, json: boolean): Promise<number> {
  if (error instanceof CommanderError) {
    if (error.exitCode === 0) return 0;
    if (json) printJson<'failure'>({error: error.message.replace(/^error: /, '')});
    return 2;
  }
  const text = await errorText(error);
  if (json) printJson<'failure'>({error: text ?? String(error)});
  for (const line of `gleaner: ${text ?? sourceStack(error.stack ?? `${error}`)}`.split('\n')) complain(line);
  return error instanceof Interrupted ? 130 : error instanceof UsageError ? 2 : 1;
}
