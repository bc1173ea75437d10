import {type Command, Option} from 'commander';
import {
  budget,
  dir,
  dryRun,
  examples,
  folder,
  json,
  natural,
  port,
  positive,
  priority,
  runId,
  seconds,
  streamNumber,
  text,
  trueOrFalse,
  yes,
} from '../terminal/arguments.ts';
import {addEstimate, addStatus, addVerify} from './runs.ts';
import {addSpecOptions} from './spec-options.ts';

/** Registers `gleaner run …`. */
export function addRunGroup(program: Command): void {
  const run = program.command('run').description('runs: start, watch, change, check and compare them');
  const about = (name: string, description: string) =>
    run
      .command(name)
      .description(description)
      .argument('<run>', 'run id', runId)
      .addOption(port())
      .addOption(dir('folder of a local cloud'))
      .addOption(json());

  addSpecOptions(
    about('start', 'write run.json, drop the streams of a folder, and wait until they are accepted'),
  )
    .option('--streams <folder>', 'folder of streams, as `streams create` makes it', folder)
    .option('--parallel <n>', 'streams that are uploaded at once', positive, 8)
    .option('--watch', 'watch the run until it has ended')
    .addOption(dryRun())
    .addHelpText(
      'after',
      examples(
        'gleaner run start my-run --streams streams --model Qwen/Qwen2.5-0.5B --layers 0-23 --budget-usd 50',
        'gleaner run start my-run --spec run.json --streams streams --watch',
        'gleaner run start my-run --layers 12 --sites resid_post,mlp_out --shard-size 500MB',
      ),
    )
    .action(async (id, options) => (await import('../run/start.ts')).start(id, options));
  about('watch', 'show TPUs, streams, cost and events of a run until it has ended')
    .option('--interval <s>', 'seconds between two looks', seconds, 2)
    .addHelpText('after', examples('gleaner run watch my-run', 'gleaner run watch my-run --interval 60'))
    .action(async (id, options) => (await import('../run/watch/watch.ts')).watch(id, options));
  addStatus(run);
  addVerify(run);
  addEstimate(run);
  about('pause', 'stop work on a run after its open shards; its TPUs are deleted')
    .addOption(dryRun())
    .addHelpText('after', examples('gleaner run pause my-run'))
    .action(async (id, options) => (await import('../run/change.ts')).pause(id, options));
  about('resume', 'continue a paused run')
    .addOption(dryRun())
    .addHelpText('after', examples('gleaner run resume my-run'))
    .action(async (id, options) => (await import('../run/change.ts')).resume(id, options));
  about('stop', 'end a run for good; stored shards stay')
    .addOption(yes())
    .addOption(dryRun())
    .addHelpText('after', examples('gleaner run stop my-run', 'gleaner run stop my-run --yes'))
    .action(async (id, options) => (await import('../run/change.ts')).stop(id, options));
  about('retry', 'try failed streams again')
    .option('--stream <number>', 'one stream, such as 007 (default: every failed stream)', streamNumber)
    .addOption(dryRun())
    .addHelpText('after', examples('gleaner run retry my-run', 'gleaner run retry my-run --stream 007'))
    .action(async (id, options) => (await import('../run/change.ts')).retry(id, options));
  about('cancel', 'park a stream: no TPU works on it until a retry')
    .requiredOption('--stream <number>', 'stream, such as 007', streamNumber)
    .addOption(dryRun())
    .addHelpText('after', examples('gleaner run cancel my-run --stream 007'))
    .action(async (id, options) => (await import('../run/change.ts')).cancel(id, options));
  about('configure', 'change the priority or the budget of a run')
    .option('--priority <n>', 'higher goes first, -1000 to 1000', priority)
    .option('--budget-usd <usd>', 'dollars that the TPUs of the run may cost, or none', budget)
    .option('--allow-mixed-code <true|false>', 'let TPUs with a later bundle continue the run', trueOrFalse)
    .option('--if-version <n>', 'change only while the document has this version', natural)
    .addOption(dryRun())
    .addHelpText('after', examples('gleaner run configure my-run --budget-usd 20 --priority 5'))
    .action(async (id, options) => (await import('../run/change.ts')).configure(id, options));

  run
    .command('compare')
    .description('compare two runs: specs, totals, costs, statistics and shards; exit 1 if they differ')
    .argument('<a>', 'run id', runId)
    .argument('<b>', 'run id', runId)
    .addOption(port())
    .addOption(dir('folder of a local cloud, running or stopped'))
    .addOption(json())
    .addHelpText(
      'after',
      [
        '',
        'Exit code 0: both have the same samples, rejected samples, tokens and rows, and statistics within 0.1 %.',
        'Exit code 1: one of these differs, or a run is not completed. Specs, costs and bytes of shards may differ.',
        examples('gleaner run compare my-run my-other-run'),
      ].join('\n'),
    )
    .action(async (a, b, options) => (await import('../run/compare.ts')).compareRuns(a, b, options));
  about('export', 'write one layer of a run to numpy files')
    .requiredOption('--layer <n>', 'layer', natural)
    .option('--site <site>', 'site, needed where the run has several', text)
    .addOption(
      new Option('--dtype <dtype>', 'of the numbers').choices(['float32', 'float16']).default('float32'),
    )
    .requiredOption('--output <folder>', 'folder that does not exist yet', folder)
    .addHelpText('after', examples('gleaner run export my-run --layer 12 --output layer-12'))
    .action(async (id, options) => (await import('../run/export.ts')).exportRun(id, options));
}
