import {type Command, Option} from 'commander';
import {dir, examples, port, positive, runId, since, tail, text} from '../terminal/arguments.ts';

const KINDS = ['run', 'stream', 'shard', 'worker', 'zone', 'rejected', 'control', 'job', 'exec'];

/** Registers `gleaner logs` and `gleaner events`. */
export function addLogCommands(program: Command): void {
  const about = (name: string, description: string) =>
    program
      .command(name)
      .description(description)
      .addOption(port())
      .addOption(dir('folder of a local cloud, running or stopped'))
      .addOption(new Option('--json', 'print one JSON object a line'));
  const follow = ['-f, --follow', 'print new lines until the end, or Ctrl-C'] as const;
  about('logs', 'print the log of a run, a TPU or a job')
    .argument('<name>', 'run id, TPU or job id', text)
    .option(...follow)
    .option('--tail <n>', 'last lines to print, or all', tail, 200)
    .option('--since <time>', 'only lines since then: 10m, 2h, or 2026-01-02T03:04:05Z', since)
    .option('--incarnation <n>', 'earlier life of a TPU, as `gleaner tpus status` lists it', positive)
    .addOption(new Option('--run', 'the name is a run').conflicts(['tpu', 'job']))
    .addOption(new Option('--tpu', 'the name is a TPU').conflicts(['run', 'job']))
    .addOption(new Option('--job', 'the name is a job').conflicts(['run', 'tpu']))
    .addHelpText(
      'after',
      examples(
        'gleaner logs my-run -f',
        'gleaner logs tpu-us-central1-a-0 --tail all',
        'gleaner logs my-run --since 10m',
      ),
    )
    .action(async (name, options) => (await import('../logs/logs.ts')).logs(name, options));
  about('events', 'print the timeline of the deployment, or of one run')
    .argument('[run]', 'run id', runId)
    .option(...follow)
    .option('--tail <n>', 'last events to print, or all', tail, 100)
    .addOption(new Option('--kind <kind>', 'only events of this kind').choices(KINDS))
    .addHelpText('after', examples('gleaner events my-run -f', 'gleaner events --kind worker --tail 20'))
    .action(async (run, options) => (await import('../events/events.ts')).events(run, options));
}
