import type {Command} from 'commander';
import {dir, dollars, dryRun, json, natural, port, seconds, text, trueOrFalse, words} from '../arguments.ts';
import {addSourceOptions} from './source-options.ts';

/** Registers the commands about pools and their hosts. */
export function addPoolCommands(program: Command): void {
  const about = (command: Command) =>
    command.addOption(port()).addOption(dir('folder of a local cloud')).addOption(json());
  about(program.command('pools').description('list the pools')).action(async options =>
    (await import('../hosts/pools.ts')).pools(options),
  );
  const pool = program.command('pool').description('a set of identical TPUs');
  about(pool.command('create').description('create a pool: TPUs come when there is work'))
    .argument('<name>', 'name of the pool', text)
    .requiredOption('--accelerator <type>', 'type of each TPU, such as v5litepod-1', text)
    .requiredOption(
      '--runtime-version <version>',
      'software of each TPU VM, such as v2-alpha-tpuv5-lite',
      text,
    )
    .requiredOption('--zones <zones>', 'zones, with commas between them', words)
    .requiredOption('--workers-per-zone <n>', 'most TPUs in each zone', natural)
    .option(
      '--spot <true|false>',
      'spare capacity, cheaper and preemptible (default: that of the deployment)',
      trueOrFalse,
    )
    .option('--poll-s <s>', 'seconds until a worker without work asks again', seconds)
    .option('--budget <usd>', 'most dollars that the pool may ever cost', dollars)
    .addOption(dryRun())
    .addHelpText(
      'after',
      '\nExample:\n  gleaner pool create big --accelerator v5litepod-8 --runtime-version v2-alpha-tpuv5-lite --zones us-central1-a --workers-per-zone 2',
    )
    .action(async (name, options) => (await import('../hosts/pools.ts')).createPool(name, options));
  about(program.command('scale').description('change the size of a pool'))
    .argument('[pool]', "pool (default: the deployment's own)", text)
    .requiredOption('--workers-per-zone <n>', 'most TPUs in each zone', natural)
    .addOption(dryRun())
    .action(async (name, options) => (await import('../hosts/pools.ts')).scale(name, options));
  about(
    program
      .command('exec')
      .description('run a command on every host of a pool, of a worker, or of all pools'),
  )
    .argument('<target>', 'pool, worker or all', text)
    .argument('<command...>', 'the command, after --')
    .option('--shell', 'join the words into one text for bash')
    .option('--timeout <s>', 'seconds that the command may take', seconds, 600)
    .addOption(dryRun())
    .addHelpText(
      'after',
      "\nExamples:\n  gleaner exec tpu -- uname -a\n  gleaner exec all --shell -- 'df -h | head -3'",
    )
    .action(async (target, words, options) =>
      (await import('../hosts/exec.ts')).exec(target, words, options),
    );
  about(program.command('discover').description('list hosts with their names and addresses'))
    .argument('[target]', 'pool, worker or all', text, 'all')
    .action(async (target, options) => (await import('../hosts/discover.ts')).discover(target, options));
  addSourceOptions(about(program.command('update').description('bring code to every host of a pool')))
    .argument('<pool>', 'pool', text)
    .option('--no-wait', 'do not wait for the hosts')
    .addOption(dryRun())
    .addHelpText('after', '\nExamples:\n  gleaner update tpu --branch main\n  gleaner update tpu --bundle .')
    .action(async (name, options) => (await import('../hosts/update.ts')).update(name, options));
  about(program.command('versions').description('show which code pools and workers have'))
    .argument('[pool]', 'pool (default: every pool)', text)
    .option('--available [zone]', 'print the gcloud command that lists the runtime versions of a zone', text)
    .action(async (name, options) =>
      (await import('../hosts/versions.ts')).versions(name, options, program.version() ?? ''),
    );
}
