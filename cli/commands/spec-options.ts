/** An option for each key of run.json. */
import {SITES} from '../../shared/contracts/spec/site-names.ts';
import {recordKeys, runSettings, specKeys} from '../../shared/domain/records/spec-keys.ts';
import {shardSize, text} from '../terminal/arguments.ts';
import type {GleanerCommand} from '../terminal/command.ts';

const {shard_size_gb: _, features: _features, project: _project, moments: _moments, ...keys} = specKeys;
const option = `${SITES.join(', ')}, or names of TransformerLens, SAELens or nnsight, with commas between`;

/** Adds the options. `cli/run/spec/spec.ts` turns them into a spec, and its schema checks their values. */
export function addSpecOptions(command: GleanerCommand): GleanerCommand {
  return command
    .option('--spec <file>', 'run.json to start from; the options below come on top of it', text)
    .fields({...keys, sites: {...keys.sites, option}})
    .option('--shard-size <size>', 'such as 1GB or 500MB', shardSize)
    .fields(recordKeys)
    .fields(runSettings);
}
