import {Command, InvalidArgumentError, Option} from 'commander';
import {LocalCloudError} from '../emulator/errors.ts';
import {Rejected} from '../shared/contracts/errors.ts';
import {printable} from '../shared/contracts/printable.ts';
import {isRunId, isZone} from '../shared/domain/names.ts';
import {DEFAULT_DIR, DEFAULT_PORT} from './defaults.ts';
import {CliError, Interrupted} from './errors.ts';
import {print, say} from './output.ts';

const wantsJson = process.argv.includes('--json');

const program = new Command('gleaner')
  .description('LLM activation extraction on spare Cloud TPUs')
  .version('0.1.0')
  .showHelpAfterError('(add --help for what is possible)')
  // Usage errors quote arguments.
  .configureOutput({writeErr: text => process.stderr.write(text.split('\n').map(printable).join('\n'))})
  // 2 is a command that was not understood, 1 an answer: not verified, or not done.
  .exitOverride(({exitCode, message}) => {
    if (exitCode === 0) process.exit(0);
    if (wantsJson) print(true, {error: message.replace(/^error: /, '')}, []);
    process.exit(2);
  });

const port = (least = 1) =>
  new Option('--port <port>', 'port of the local cloud').argParser(text => portNumber(text, least));
const dir = (text: string) => new Option('--dir <folder>', text).argParser(folder);
const json = () => new Option('--json', 'print JSON for programs');

program
  .command('demo')
  .description('run the whole path on this machine: streams in, workers, a preemption, verified shards out')
  .option('--input <files...>', 'JSONL files to extract from, instead of sample tasks')
  .option('--model <folder>', 'a model folder in the Hugging Face layout, instead of a tiny random one')
  .option('--streams <n>', 'how many streams to split the input into', positive, 2)
  .option('--workers <n>', 'how many TPUs there are', positive, 2)
  .option('--preempt <n>', 'how many preemptions without notice to inject', natural, 1)
  .addOption(dir('where everything is kept (default: .gleaner/demo, emptied first)'))
  .addOption(port(0).default(0, 'any free one'))
  .option('--keep', 'leave the local cloud running at the end, until Ctrl-C')
  .addOption(json())
  .action(async options => (await import('./demo/demo.ts')).demo(options));

const local = program.command('local').description('a small Google Cloud on this machine');
local
  .command('up')
  .description('start it, and stay up until Ctrl-C')
  .addOption(port(0).default(DEFAULT_PORT))
  .addOption(dir('where everything is kept').default(DEFAULT_DIR))
  .option('--workers <n>', 'how many TPUs the pool may have', positive, 2)
  .addOption(json())
  .action(async options => (await import('./local.ts')).up(options));
local
  .command('env')
  .description('print the export lines that point gcloud and the Cloud Storage clients at it')
  .addOption(port())
  .addOption(dir('its folder, instead of its port'))
  .action(async options => (await import('./local.ts')).printEnvironment(options));
local
  .command('fault')
  .description('inject a fault; `gleaner local fault help` lists the kinds')
  .argument('<kind>', 'preempt, vanish, dead, stockout, drop, double, reorder, clear …')
  .argument('[target]', 'a TPU, a zone or a kind of event', '')
  .addOption(port())
  .addOption(dir('its folder, instead of its port'))
  .action(async (kind, target, options) => (await import('./local.ts')).fault(kind, target, options));

program
  .command('status')
  .description('show runs, or one run with its streams, workers and latest events')
  .argument('[run]', 'run id', runId)
  .addOption(port())
  .addOption(dir('the folder of a local cloud, running or not'))
  .addOption(json())
  .action(async (run, options) => (await import('./status.ts')).status(run, options));

program
  .command('verify')
  .description('read a run and every shard of it again, and count what is stored exactly once')
  .argument('<run>', 'run id', runId)
  .addOption(port())
  .addOption(dir('the folder of a local cloud, running or not'))
  .addOption(json())
  .action(async (run, options) => (await import('./verify.ts')).verify(run, options));

program
  .command('estimate')
  .description('say before a run how many tokens, shards, bytes, hours and dollars it will be, from a sample')
  .argument('<what>', 'a JSONL file, gs://BUCKET/datasets/RUN/, a stream in a bucket, or a run id')
  .option('--spec <file>', "a run.json, instead of the run's own or the defaults")
  .option('--model <model>', 'another model than the spec says', modelName)
  .option('--accelerator <type>', 'of each TPU', 'v5litepod-1')
  .option('--zone <zone>', 'where they are, for their price', zone, 'us-central1-a')
  .option('--workers <n>', 'how many of them work at once', positive, 1)
  .option(
    '--sample-bytes <n>',
    'how much of the streams is read; all of them where they have no more',
    bytes,
    6_291_456,
  )
  .option('--tokens-per-second <n>', 'what one TPU does, measured, instead of what is assumed', rate)
  .addOption(
    new Option(
      '--like <run>',
      'an earlier run of the same kind: what it did for its money, instead of what is assumed',
    )
      .argParser(runId)
      .conflicts('tokensPerSecond'),
  )
  .addOption(port())
  .addOption(dir('the folder of a local cloud, running or not'))
  .addOption(json())
  .action(async (what, options) => (await import('./estimate/estimate.ts')).estimate(what, options));

program
  .command('rebuild')
  .description('make runs, streams, shards and checkpoints again from the bucket, while workers go on')
  .argument('[run]', 'run id; without it, every run that the bucket holds', runId)
  .option('--dry-run', 'change nothing: say what differs from the bucket, and exit 1 if anything does')
  .addOption(port())
  .addOption(dir('the folder of a local cloud; only --dry-run may be asked of one that does not run'))
  .addOption(json())
  .action(async (run, options) => (await import('./rebuild.ts')).rebuild(run, options));

/** `least`: 0 where a server may take any free port, and 1 where a server is to be found. */
function portNumber(text: string, least: number): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < least || value > 65535)
    throw new InvalidArgumentError(`a port is ${least} to 65535.`);
  return value;
}

function positive(text: string): number {
  return whole(text, 1);
}

function bytes(text: string): number {
  const value = Number(text);
  if (!/^\d{3,12}$/.test(text)) throw new InvalidArgumentError('a whole number of bytes from 100 up.');
  return value;
}

function rate(text: string): number {
  const value = Number(text);
  if (!(value > 0 && Number.isFinite(value))) throw new InvalidArgumentError('a number above 0.');
  return value;
}

function natural(text: string): number {
  return whole(text, 0);
}

function whole(text: string, least: number): number {
  if (!/^\d{1,4}$/.test(text) || Number(text) < least)
    throw new InvalidArgumentError(`a whole number from ${least} to 9999.`);
  return Number(text);
}

function folder(text: string): string {
  if (text === '') throw new InvalidArgumentError('a folder, such as . for the current one.');
  return text;
}

function runId(text: string): string {
  if (!isRunId(text))
    throw new InvalidArgumentError('a run id is 1 to 39 of a-z, 0-9 and -, starting with a letter.');
  return text;
}

function modelName(text: string): string {
  if (text === '') throw new InvalidArgumentError('a hub id, or a folder in the Hugging Face layout.');
  return text;
}

function zone(text: string): string {
  if (!isZone(text)) throw new InvalidArgumentError('a zone such as us-central1-a.');
  return text;
}

try {
  await program.parseAsync();
} catch (error) {
  const {message, stack, code} = error as NodeJS.ErrnoException;
  const isTold =
    [CliError, LocalCloudError, Rejected].some(kind => error instanceof kind) || code === 'ENOSPC';
  if (wantsJson) print(true, {error: isTold ? message : String(error)}, []);
  for (const line of `gleaner: ${isTold ? message : (stack ?? error)}`.split('\n')) say(line);
  process.exitCode = error instanceof Interrupted ? 130 : 1;
}
