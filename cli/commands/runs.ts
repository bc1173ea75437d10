import {Argument, type Command, Option} from 'commander';
import {bytes, dir, json, modelName, port, positive, rate, runId, zone} from '../arguments.ts';

/** Registers the commands about runs. */
export function addRunCommands(program: Command): void {
  program
    .command('status')
    .description('show every run, or one run with its streams, workers and latest events')
    .argument('[run]', 'run id', runId)
    .addOption(port())
    .addOption(dir('folder of a local cloud, running or stopped'))
    .addOption(json())
    .action(async (run, options) => (await import('../status.ts')).status(run, options));

  program
    .command('verify')
    .description(
      'read the streams and every shard of a run, and count the samples that are stored exactly once',
    )
    .argument('<run>', 'run id', runId)
    .addOption(port())
    .addOption(dir('folder of a local cloud, running or stopped'))
    .addOption(json())
    .action(async (run, options) => (await import('../verify.ts')).verify(run, options));

  program
    .command('estimate')
    .description(
      'estimate the tokens, shards, bytes, hours and dollars of a run from a sample of its streams',
    )
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
    .action(async (what, options) => (await import('../estimate/estimate.ts')).estimate(what, options));

  program
    .command('rebuild')
    .description('rebuild the documents of runs, streams and shards from the bucket; workers continue')
    .argument('[run]', 'run id (default: every run in the bucket)', runId)
    .option('--dry-run', 'change nothing: list the differences from the bucket, and exit 1 where any exists')
    .addOption(port())
    .addOption(dir('folder of a local cloud; a stopped cloud permits only --dry-run'))
    .addOption(json())
    .action(async (run, options) => (await import('../rebuild.ts')).rebuild(run, options));

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
    .action(async (action, options) => (await import('../tick.ts')).tick(action, options));
}
