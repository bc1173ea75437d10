import {EventEmitter} from 'node:events';
import {Command} from 'commander';
import {LocalCloudError} from '../emulator/errors.ts';
import {Rejected} from '../shared/contracts/errors.ts';
import {printable} from '../shared/contracts/printable.ts';
import {adviceFor} from '../shared/google/error-advice.ts';
import {withAdvice} from '../shared/google/errors.ts';
import {addCloudCommands} from './commands/clouds.ts';
import {addJobCommands} from './commands/jobs.ts';
import {addPoolCommands} from './commands/pools.ts';
import {addRunCommands} from './commands/runs.ts';
import {CliError, Interrupted} from './errors.ts';
import {print, say} from './output.ts';

// Google's storage client adds listeners to a stream with each piece of an object, and Node would warn of them.
EventEmitter.defaultMaxListeners = 0;

// Words behind -- belong to another command.
const wantsJson = process.argv.join('\0').split('\0--\0')[0]?.split('\0').includes('--json') ?? false;

const program = new Command('gleaner')
  .description('LLM activation extraction on spare Cloud TPUs')
  .version('0.1.0')
  .showHelpAfterError('(add --help for the options)')
  // Usage errors quote arguments, which may contain control characters.
  .configureOutput({writeErr: text => process.stderr.write(text.split('\n').map(printable).join('\n'))})
  // Exit 2: the command line is invalid. Exit 1: the command failed, or its answer is negative.
  .exitOverride(({exitCode, message}) => {
    if (exitCode === 0) process.exit(0);
    if (wantsJson) print(true, {error: message.replace(/^error: /, '')}, []);
    process.exit(2);
  });

addCloudCommands(program);
addRunCommands(program);
addJobCommands(program);
addPoolCommands(program);

try {
  await program.parseAsync();
} catch (error) {
  const text = textOf(error as NodeJS.ErrnoException);
  if (wantsJson) print(true, {error: text ?? String(error)}, []);
  for (const line of `gleaner: ${text ?? (error as Error).stack ?? error}`.split('\n')) say(line);
  process.exitCode = error instanceof Interrupted ? 130 : 1;
}

/** Text for a person, of an error that the person can mend; undefined for a defect. */
function textOf(error: NodeJS.ErrnoException): string | undefined {
  const {message, code} = error;
  if ([CliError, LocalCloudError, Rejected].some(kind => error instanceof kind) || code === 'ENOSPC')
    return message;
  return adviceFor(message) === undefined ? undefined : withAdvice(error);
}
