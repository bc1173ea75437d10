/** Commands about runs that have a short form beside `gleaner run …`, and the repair of documents. */
import {Argument, type Command, Option} from 'commander';
import {
  bytes,
  dir,
  dryRun,
  examples,
  json,
  modelName,
  port,
  positive,
  rate,
  runId,
  seconds,
  words,
  zone,
} from '../terminal/arguments.ts';
import {addSpecOptions} from './spec-options.ts';

/** Registers the short forms. */
export function addRunCommands(program: Command): void {
  addStatus(program);
  addVerify(program);
  addEstimate(program);
  addPreflight(program);
  addRebuild(program);
  addTick(program);
}

/** `status`, `verify` and `estimate` of the program, or of its group `run`. */
export function addStatus(parent: Command): void {
  const of = formOf(parent);
  parent
    .command('status')
    .description('show every run, or one run with its streams, TPUs and latest events')
    .argument('[run]', 'run id', runId)
    .option('-w, --watch', 'keep the screen up to date until the run has ended')
    .option('--interval <s>', 'seconds between two looks, with --watch', seconds, 2)
    .addOption(port())
    .addOption(dir('folder of a local cloud, running or stopped'))
    .addOption(json())
    .addHelpText('after', examples(`${of} status`, `${of} status my-run`, `${of} status my-run --watch`))
    .action(async (run, options) => {
      if (!options.watch) return (await import('../run/status.ts')).status(run, options);
      if (run === undefined) return parent.error('error: --watch needs the name of a run', {exitCode: 2});
      return (await import('../run/watch/watch.ts')).watch(run, options);
    });
}

export function addVerify(parent: Command): void {
  parent
    .command('verify')
    .description(
      'read the streams and every shard of a run, and count the samples that are stored exactly once',
    )
    .argument('<run>', 'run id', runId)
    .addOption(port())
    .addOption(dir('folder of a local cloud, running or stopped'))
    .addOption(json())
    .addHelpText('after', examples(`${formOf(parent)} verify my-run`))
    .action(async (run, options) => (await import('../run/verify.ts')).verify(run, options));
}

export function addEstimate(parent: Command): void {
  const of = formOf(parent);
  parent
    .command('estimate')
    .description('estimate the tokens, shards, bytes, time and dollars of a run from a sample of its streams')
    .argument('<what>', 'JSONL file, gs://BUCKET/datasets/RUN/, stream in a bucket, or run id')
    .option('--spec <file>', "run.json in place of the run's own spec or the defaults")
    .option('--model <model>', 'model in place of the model in the spec', modelName)
    .option('--accelerator <type>', 'type of each TPU', 'v5litepod-1')
    .option('--zone <zone>', 'zone of the TPUs, for their price', zone, 'us-central1-a')
    .option('--workers <n>', 'number of TPUs that work at once', positive, 1)
    .option(
      '--sample-bytes <n>',
      'bytes of the sample; shorter streams are read as a whole',
      bytes,
      6_291_456,
    )
    .option('--quick', "assume a share of the chip's peak in place of the TPU compiler's estimate")
    .option('--tokens-per-second <n>', 'measured speed of one TPU, in place of the assumed speed', rate)
    .addOption(
      new Option(
        '--like <run>',
        'earlier run on the same type of TPU, in place of assumed speed and overhead',
      )
        .argParser(runId)
        .conflicts('tokensPerSecond'),
    )
    .addOption(port())
    .addOption(dir('folder of a local cloud, running or stopped'))
    .addOption(json())
    .addHelpText(
      'after',
      examples(
        `${of} estimate my.jsonl --workers 8 --model Qwen/Qwen2.5-0.5B`,
        `${of} estimate my-run --accelerator v6e-1 --zone us-east1-d`,
      ),
    )
    .action(async (what, options) => (await import('../run/estimate/estimate.ts')).estimate(what, options));
}

function addPreflight(program: Command): void {
  const command = program
    .command('preflight')
    .description(
      'compile the program of a run for TPUs, without a TPU: whether it fits, its speed and its price',
    )
    .requiredOption('--accelerator <types>', 'types of TPU, with commas between', words)
    .option('--zone <zone>', 'zone of the TPUs, for their price', zone, 'us-central1-a');
  addSpecOptions(command)
    .addOption(port())
    .addOption(dir('folder of a local cloud, running or stopped'))
    .addOption(json())
    .addHelpText(
      'after',
      examples(
        'gleaner preflight --model Qwen/Qwen2.5-0.5B --accelerator v5litepod-1',
        'gleaner preflight --model google/gemma-2-27b --layers 20 --accelerator v5litepod-8,v6e-8 --json',
      ),
    )
    .action(async options => (await import('../preflight/preflight.ts')).preflight(options));
}

function addRebuild(program: Command): void {
  program
    .command('rebuild')
    .description('rebuild the documents of runs, streams and shards from the bucket; TPUs continue')
    .argument('[run]', 'run id (default: every run in the bucket)', runId)
    .option('--dry-run', 'change nothing: list the differences from the bucket, and exit 1 where any exists')
    .addOption(port())
    .addOption(dir('folder of a local cloud; a stopped cloud permits only --dry-run'))
    .addOption(json())
    .addHelpText('after', examples('gleaner rebuild --dry-run', 'gleaner rebuild my-run'))
    .action(async (run, options) => (await import('../rebuild.ts')).rebuild(run, options));
}

function addTick(program: Command): void {
  program
    .command('tick')
    .description('ask for a tick now; or pause, resume or show the job that asks for one every minute')
    .addArgument(
      new Argument('[action]', 'what to do').choices(['now', 'pause', 'resume', 'state']).default('now'),
    )
    .option('--location <region>', 'region of the Cloud Scheduler job', 'us-central1')
    .addOption(dryRun())
    .addOption(port())
    .addOption(dir('folder of a running local cloud'))
    .addOption(json())
    .addHelpText('after', examples('gleaner tick', 'gleaner tick state --location europe-west4'))
    .action(async (action, options) => (await import('../tick.ts')).tick(action, options));
}

/** `gleaner`, or `gleaner run`. */
function formOf(parent: Command): string {
  return parent.parent ? `${parent.parent.name()} ${parent.name()}` : parent.name();
}
