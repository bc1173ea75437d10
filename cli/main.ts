import {Argument, Command, InvalidArgumentError, Option} from 'commander';
import {LocalCloudError} from '../emulator/errors.ts';
import {Rejected} from '../shared/contracts/errors.ts';
import {printable} from '../shared/contracts/printable.ts';
import {isRunId, isZone} from '../shared/domain/names.ts';
import {adviceFor} from '../shared/google/error-advice.ts';
import {withAdvice} from '../shared/google/errors.ts';
import {DEFAULT_DIR, DEFAULT_PORT} from './defaults.ts';
import {CliError, Interrupted} from './errors.ts';
import {print, say} from './output.ts';

const wantsJson = process.argv.includes('--json');

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

const port = (least = 1) =>
  new Option('--port <port>', 'port of the local cloud').argParser(text => portNumber(text, least));
const dir = (text: string) => new Option('--dir <folder>', text).argParser(folder);
const json = () => new Option('--json', 'print JSON for programs');

program
  .command('demo')
  .description('run the whole path on this machine: streams, workers, a preemption, verified shards')
  .option('--input <files...>', 'JSONL files with the samples (default: sample tasks)')
  .option('--model <folder>', 'model folder in the Hugging Face layout (default: a tiny random model)')
  .option('--streams <n>', 'number of streams that share the input', positive, 2)
  .option('--workers <n>', 'number of TPUs', positive, 2)
  .option('--preempt <n>', 'number of injected preemptions without notice', natural, 1)
  .addOption(dir('folder of all files (default: .gleaner/demo, emptied first)'))
  .addOption(port(0).default(0, 'any free port'))
  .option('--keep', 'keep the local cloud running until Ctrl-C')
  .addOption(json())
  .action(async options => (await import('./demo/demo.ts')).demo(options));

const local = program.command('local').description('a small Google Cloud on this machine');
local
  .command('up')
  .description('start a local cloud and run it until Ctrl-C')
  .addOption(port(0).default(DEFAULT_PORT))
  .addOption(dir('folder of all files').default(DEFAULT_DIR))
  .option('--workers <n>', 'maximum number of TPUs in the pool', positive, 2)
  .option('--built', 'run the functions of `gleaner build` instead of their sources')
  .option('--emulators', "use Google's emulators of Firestore and Pub/Sub; needs gcloud and Java")
  .addOption(json())
  .action(async options => (await import('./local.ts')).up(options));
local
  .command('env')
  .description('print export lines that point gcloud and the Cloud Storage clients at the local cloud')
  .addOption(port())
  .addOption(dir('folder of the local cloud, in place of its port'))
  .action(async options => (await import('./local.ts')).printEnvironment(options));
local
  .command('fault')
  .description('inject a fault; `gleaner local fault help` lists the kinds')
  .argument('<kind>', 'preempt, vanish, dead, stockout, drop, double, reorder, clear …')
  .argument('[target]', 'TPU, queued resource, zone or kind of event', '')
  .addOption(port())
  .addOption(dir('folder of the local cloud, in place of its port'))
  .action(async (kind, target, options) => (await import('./local.ts')).fault(kind, target, options));

program
  .command('build')
  .description('build the functions and the worker bundle for Google Cloud into dist/')
  .addOption(json())
  .action(async options => (await import('./build/build.ts')).build(options));

program
  .command('deploy')
  .description('build, plan, ask, and deploy to Google Cloud with Terraform; `terraform apply` works as well')
  .argument('[settings]', 'JSON file of variables of terraform/ (default: gleaner.tfvars.json)')
  .option('--plan', 'change nothing: print the resources, and the most that an hour can cost')
  .option('--yes', 'apply without a question')
  .option(
    '--repeat-after <s>',
    'seconds before the repeat where Google has not finished an earlier step',
    natural,
    120,
  )
  .option('--state-bucket <bucket>', "bucket of Terraform's state (default: PROJECT-gleaner-terraform)")
  .addOption(json())
  .action(async (settings, options) => (await import('./deploy/deploy.ts')).deploy(settings, options));

program
  .command('status')
  .description('show every run, or one run with its streams, workers and latest events')
  .argument('[run]', 'run id', runId)
  .addOption(port())
  .addOption(dir('folder of a local cloud, running or stopped'))
  .addOption(json())
  .action(async (run, options) => (await import('./status.ts')).status(run, options));

program
  .command('verify')
  .description(
    'read the streams and every shard of a run, and count the samples that are stored exactly once',
  )
  .argument('<run>', 'run id', runId)
  .addOption(port())
  .addOption(dir('folder of a local cloud, running or stopped'))
  .addOption(json())
  .action(async (run, options) => (await import('./verify.ts')).verify(run, options));

program
  .command('estimate')
  .description('estimate the tokens, shards, bytes, hours and dollars of a run from a sample of its streams')
  .argument('<what>', 'JSONL file, gs://BUCKET/datasets/RUN/, stream in a bucket, or run id')
  .option('--spec <file>', "run.json in place of the run's own spec or the defaults")
  .option('--model <model>', 'model in place of the model in the spec', modelName)
  .option('--accelerator <type>', 'type of each TPU', 'v5litepod-1')
  .option('--zone <zone>', 'zone of the TPUs, for their price', zone, 'us-central1-a')
  .option('--workers <n>', 'number of TPUs that work at once', positive, 1)
  .option('--sample-bytes <n>', 'bytes of the sample; shorter streams are read as a whole', bytes, 6_291_456)
  .option('--tokens-per-second <n>', 'measured speed of one TPU, in place of the assumed speed', rate)
  .addOption(
    new Option('--like <run>', 'earlier run on the same type of TPU, in place of assumed speed and overhead')
      .argParser(runId)
      .conflicts('tokensPerSecond'),
  )
  .addOption(port())
  .addOption(dir('folder of a local cloud, running or stopped'))
  .addOption(json())
  .action(async (what, options) => (await import('./estimate/estimate.ts')).estimate(what, options));

program
  .command('rebuild')
  .description('rebuild the documents of runs, streams and shards from the bucket; workers continue')
  .argument('[run]', 'run id (default: every run in the bucket)', runId)
  .option('--dry-run', 'change nothing: list the differences from the bucket, and exit 1 where any exists')
  .addOption(port())
  .addOption(dir('folder of a local cloud; a stopped cloud permits only --dry-run'))
  .addOption(json())
  .action(async (run, options) => (await import('./rebuild.ts')).rebuild(run, options));

program
  .command('tick')
  .description('ask for a tick now; or pause, resume or show the job that asks for one every minute')
  .addArgument(
    new Argument('[action]', 'what to do').choices(['now', 'pause', 'resume', 'state']).default('now'),
  )
  .option('--location <region>', 'region of the Cloud Scheduler job', 'us-central1')
  .option('--dry-run', 'change nothing: print the gcloud command')
  .addOption(port())
  .addOption(dir('folder of a running local cloud'))
  .addOption(json())
  .action(async (action, options) => (await import('./tick.ts')).tick(action, options));

/** Port with a lower bound: 0 for a server, which may use any free port, and 1 for a client. */
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
