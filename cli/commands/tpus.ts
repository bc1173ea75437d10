import {poolSizes} from '../../shared/domain/records/pool-settings.ts';
import {poolName, text, tpuName, words, zone} from '../terminal/arguments.ts';
import type {GleanerCommand} from '../terminal/command.ts';

/** Registers `gleaner tpus …`. */
export function addTpuCommands(program: GleanerCommand): void {
  const tpus = program.about('tpus', 'list, create, recreate or delete the TPUs of the deployment');
  tpus
    .about('list', 'list the TPUs with their work and their price')
    .option('--pool <pool>', 'only TPUs of this pool', poolName)
    .option('--zone <zone>', 'only TPUs of this zone', zone)
    .option('--all', 'also TPUs that are gone')
    .onCloud()
    .examples('gleaner tpus list', 'gleaner tpus list --zone us-central1-a --all')
    .action(async options => (await import('../tpus/list.ts')).list(options));
  tpus
    .about('status', 'show one TPU: node, health, work, cost and its earlier attempts')
    .argument('<name>', 'name of the TPU', tpuName)
    .onCloud()
    .examples('gleaner tpus status tpu-us-central1-a-0')
    .action(async (name, options) => (await import('../tpus/status.ts')).status(name, options));
  tpus
    .about('create', 'set the most TPUs of a pool; TPUs come when there is work')
    .argument('[target]', "pool, or TPU that was deleted (default: the deployment's own pool)", text)
    .option('--zones <zones>', 'zones, with commas between them', words)
    .fields(poolSizes)
    .onCloud()
    .dryRun()
    .examples(
      'gleaner tpus create --zones us-central1-a,us-central1-b --workers-per-zone 4',
      'gleaner tpus create tpu-us-central1-a-0',
    )
    .action(async (target, options) => (await import('../tpus/changes.ts')).create(target, options));
  tpus
    .about('recreate', 'delete TPUs in any state, and create them again if there is work')
    .argument('[names...]', 'names of TPUs')
    .option('--preempted', 'list the lost TPUs, which the tick recreates by itself')
    .onCloud()
    .changes(({preempted}) => preempted !== true)
    .yes()
    .dryRun()
    .examples('gleaner tpus recreate tpu-us-central1-a-0', 'gleaner tpus recreate --preempted')
    .action(async (names, options) => (await import('../tpus/changes.ts')).recreate(names, options));
  tpus
    .about('delete', 'delete TPUs; their slots stay empty until `recreate`')
    .argument('[names...]', 'names of TPUs')
    .option('--zone <zone>', 'every TPU of this zone', zone)
    .option('--all', 'every TPU')
    .onCloud()
    .yes()
    .dryRun()
    .examples('gleaner tpus delete tpu-us-central1-a-0', 'gleaner tpus delete --zone us-central1-a --yes')
    .action(async (names, options) => (await import('../tpus/changes.ts')).remove(names, options));
}
