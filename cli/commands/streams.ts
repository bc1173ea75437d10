import type {Command} from 'commander';
import {dir, dryRun, examples, folder, json, port, positive, runId} from '../arguments.ts';

/** Registers the commands about streams. */
export function addStreamCommands(program: Command): void {
  const streams = program.command('streams').description('split a dataset into streams, and upload streams');

  streams
    .command('upload')
    .description('upload the streams of a folder to a run; the same command goes on after an interruption')
    .argument('<folder>', 'folder of streams, perhaps with a run.json', folder)
    .requiredOption('--run <run>', 'run id', runId)
    .option('--parallel <n>', 'streams that are uploaded at once', positive, 8)
    .addOption(dryRun())
    .addOption(port())
    .addOption(dir('folder of a running local cloud'))
    .addOption(json())
    .addHelpText(
      'after',
      examples(
        'gleaner streams upload streams --run my-run',
        'gleaner streams upload streams --run my-run --parallel 16',
        'gleaner streams upload streams --run my-run --dry-run',
      ),
    )
    .action(async (from, options) => (await import('../streams/upload-command.ts')).upload(from, options));
}
