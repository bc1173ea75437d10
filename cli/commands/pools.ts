import {type Command, Option} from 'commander';
import {
  budget,
  dir,
  dollars,
  dryRun,
  examples,
  json,
  natural,
  port,
  seconds,
  text,
  trueOrFalse,
  words,
  zone,
} from '../terminal/arguments.ts';
import {addSourceOptions} from './source-options.ts';
import {provisioning} from './tpus.ts';

/** Registers the commands about pools and their hosts. */
export function addPoolCommands(program: Command): void {
  const about = (command: Command) =>
    command.addOption(port()).addOption(dir('folder of a local cloud')).addOption(json());
  about(program.command('pools').description('list the pools'))
    .addHelpText('after', examples('gleaner pools'))
    .action(async options => (await import('../hosts/pools.ts')).pools(options));
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
    .option('--budget-usd <usd>', 'most dollars that the pool may ever cost', dollars)
    .addOption(new Option('--budget <usd>', 'earlier name of --budget-usd').argParser(dollars).hideHelp())
    .addOption(dryRun())
    .addHelpText(
      'after',
      examples(
        'gleaner pool create big --accelerator v5litepod-8 --runtime-version v2-alpha-tpuv5-lite --zones us-central1-a --workers-per-zone 2',
      ),
    )
    .action(async (name, options) => (await import('../hosts/pools.ts')).createPool(name, options));
  about(pool.command('resume').description('allow creates again after a breaker stopped them'))
    .argument('<name>', 'name of the pool', text)
    .addOption(dryRun())
    .addHelpText('after', examples('gleaner pool resume tpu'))
    .action(async (name, options) => (await import('../hosts/pools.ts')).resumePool(name, options));
  about(program.command('scale').description('change the size, the zones or the budget of a pool'))
    .argument('[pool]', "pool (default: the deployment's own)", text)
    .option('--workers-per-zone <n>', 'most TPUs in each zone', natural)
    .option('--zones <zones>', 'zones, with commas between them', words)
    .addOption(provisioning())
    .option('--budget-usd <usd>', 'most dollars that the pool may ever cost, or none', budget)
    .option('--poll-s <s>', 'seconds until a worker without work asks again', seconds)
    .option('--if-version <n>', 'change nothing unless the pool is at this version', natural)
    .addOption(dryRun())
    .addHelpText(
      'after',
      examples(
        'gleaner scale --workers-per-zone 0',
        'gleaner scale tpu --zones us-central1-a,us-east5-b --budget-usd 50',
      ),
    )
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
      examples('gleaner exec tpu -- uname -a', "gleaner exec all --shell -- 'df -h | head -3'"),
    )
    .action(async (target, words, options) =>
      (await import('../hosts/exec.ts')).exec(target, words, options),
    );
  about(program.command('discover').description('list hosts with their names and addresses'))
    .argument('[target]', 'pool, worker or all', text, 'all')
    .addHelpText('after', examples('gleaner discover', 'gleaner discover tpu-us-central1-a-0'))
    .action(async (target, options) => (await import('../hosts/discover.ts')).discover(target, options));
  addSourceOptions(about(program.command('update').description('bring code to every host of a pool')))
    .argument('<pool>', 'pool', text)
    .option('--no-wait', 'do not wait for the hosts')
    .addOption(dryRun())
    .addHelpText('after', examples('gleaner update tpu --branch main', 'gleaner update tpu --bundle .'))
    .action(async (name, options) => (await import('../hosts/update.ts')).update(name, options));
  about(program.command('versions').description('show which code pools and workers have'))
    .argument('[pool]', 'pool (default: every pool)', text)
    .option(
      '--available [zone]',
      'list the runtime versions that a zone offers (default: every zone of the pools)',
      zone,
    )
    .addOption(dryRun())
    .addHelpText('after', examples('gleaner versions', 'gleaner versions --available us-central1-a'))
    .action(async (name, options) =>
      (await import('../hosts/versions.ts')).versions(name, options, program.version() ?? ''),
    );
}
