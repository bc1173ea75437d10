import {poolSettings, poolTerms} from '../../shared/domain/records/pool-settings.ts';
import {scaleMessage} from '../pools/scale.ts';
import {natural, poolName, positive, seconds, text, whole, words, zone} from '../terminal/arguments.ts';
import {type GleanerCommand, RUNNING_OR_STOPPED} from '../terminal/command.ts';
import {VERSION} from '../terminal/version.ts';
import {addSourceOptions} from './source-options.ts';

export function addPoolCommands(program: GleanerCommand): void {
  program
    .about('pools', 'list the pools')
    .onCloud()
    .examples('gleaner pools')
    .action(async options => (await import('../pools/pools.ts')).pools(options));
  const pool = program.about('pool', 'create, keep, pause, resume or delete a set of identical TPUs');
  const about = (name: string, description: string) =>
    pool.about(name, description).argument('<name>', 'name of the pool', poolName);
  about('create', 'create a pool: TPUs come when there is work')
    .fields(poolTerms, {needed: ['accelerator'], hasTruth: true})
    .requiredOption('--zones <zones>', 'zones, with commas between them', words)
    .fields(poolSettings, {needed: ['workers_per_zone']})
    .noCheck()
    .onCloud()
    .dryRun()
    .examples(
      'gleaner pool create big --accelerator v5litepod-8 --zones us-central1-a --workers-per-zone 2',
      'gleaner pool create new --provider compute-engine --accelerator v6e-8 --disk-gb 200 --zones us-east5-a --workers-per-zone 1',
    )
    .action(async (name, options) => (await import('../pools/pools.ts')).createPool(name, options));
  about('keep', 'keep TPUs without work for the next job or command; 0 minutes ends it')
    .requiredOption('--minutes <n>', 'minutes from now on', whole(0, 1440))
    .option('--workers <n>', 'TPUs that stay', positive, 1)
    .onCloud()
    .examples('gleaner pool keep tpu --minutes 30', 'gleaner pool keep tpu --minutes 0')
    .sends((pool: string, {minutes, workers}: {minutes: number; workers: number}) => ({
      ...{action: 'keep', pool, minutes},
      ...(minutes === 0 ? {} : {workers}),
    }));
  about('pause', 'create no TPU until resume; running TPUs continue')
    .onCloud()
    .examples('gleaner pool pause tpu')
    .sends((pool: string) => ({action: 'pause', pool}));
  about('resume', 'allow creates again after a pause, or after failed boots or refusals stopped them')
    .onCloud()
    .examples('gleaner pool resume tpu')
    .sends((pool: string) => ({action: 'resume', pool}));
  about('delete', 'delete a pool that no run, no job and no TPU uses')
    .onCloud()
    .yes()
    .dryRun()
    .examples('gleaner pool delete big')
    .action(async (name, options) => (await import('../pools/pools.ts')).deletePool(name, options));
  program
    .about('scale', 'change the size, the zones or the budget of a pool')
    .argument('[pool]', "pool (default: the deployment's own)", poolName)
    .option('--zones <zones>', 'zones, with commas between them', words)
    .fields(poolSettings)
    .option('--if-version <n>', 'change nothing unless the pool is at this version', natural)
    .onCloud()
    .examples(
      'gleaner scale --workers-per-zone 0',
      'gleaner scale tpu --zones us-central1-a,us-east5-b --budget-usd 50',
    )
    .sends(scaleMessage);
}

/** Registers `gleaner prices`. */
export function addPriceCommands(program: GleanerCommand): void {
  program
    .about('churn', 'show how requests and TPUs fared in the last week, by zone and accelerator')
    .onCloud(RUNNING_OR_STOPPED)
    .examples('gleaner churn', 'gleaner churn --json')
    .action(async options => (await import('../pools/churn.ts')).churn(options));
  program
    .about('prices', 'update the prices of TPUs')
    .about('update', 'read the prices of the Cloud Billing Catalog into prices/chips; prices of people stay')
    .onCloud()
    .dryRun('change nothing: print the prices that would change')
    .examples('gleaner prices update --dry-run', 'gleaner prices update --json')
    .action(async options => (await import('../pools/prices.ts')).updatePrices(options));
}

export function addHostCommands(program: GleanerCommand): void {
  program
    .about('exec', 'run a command on every host of a pool, of a worker, or of all pools')
    .argument('<target>', 'pool, worker or all', text)
    .argument('<command...>', 'the command, after --')
    .option('--shell', 'join the words into one text for bash')
    .option('--timeout <time>', 'most time of the command, such as 90s, 15m or 2h', seconds, 600)
    .onCloud()
    .dryRun()
    .wordsAfterDashes('options of the command go after --')
    .examples('gleaner exec tpu -- uname -a', "gleaner exec all --shell -- 'df -h | head -3'")
    .action(async (target, words, options) => (await import('../tpus/exec.ts')).exec(target, words, options));
  program
    .about('discover', 'list hosts with their names and addresses')
    .argument('[target]', 'pool, worker or all', text, 'all')
    .onCloud()
    .examples('gleaner discover', 'gleaner discover tpu-us-central1-a-0')
    .action(async (target, options) => (await import('../pools/hosts.ts')).discover(target, options));
  addSourceOptions(program.about('update', 'change the code of every host of a pool'))
    .argument('<pool>', 'pool', poolName)
    .option('--no-wait', 'do not wait for the hosts')
    .noCheck()
    .onCloud()
    .dryRun()
    .examples(
      'gleaner update tpu --branch main',
      'gleaner update tpu --bundle .',
      'gleaner update tpu --repo none',
    )
    .action(async (name, options) => (await import('../pools/update.ts')).update(name, options));
  program
    .about('versions', 'show which code pools and workers have')
    .argument('[pool]', 'pool (default: every pool)', poolName)
    .option(
      '--available [zone]',
      'list the runtime versions of a zone (default: every zone of the pools)',
      zone,
    )
    .onCloud()
    .option('--dry-run', 'change nothing: print the gcloud commands')
    .examples('gleaner versions', 'gleaner versions --available us-central1-a')
    .action(async (name, options) => (await import('../pools/hosts.ts')).versions(name, options, VERSION));
}
