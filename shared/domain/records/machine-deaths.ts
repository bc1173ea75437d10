import type {z} from 'zod';
import {count, emptyOf, instant, orNull} from '../fields.ts';

/** Machine deaths of a run since its last `resume`. */
export const machineDeaths = {
  machine_deaths: count.describe(
    'Machines in a row that died at work on the run without a stored shard. Ten pause the run.',
  ),
  machine_deaths_shards: count.describe(
    'Value of `total_shards` at the last counted death. A higher total resets the count.',
  ),
  machine_failed_streams: count.describe(
    'Streams that failed because their machines died, since the last `resume`. Three pause the run.',
  ),
  unjudged_death_at: orNull(instant).describe(
    'Time at which a silent machine was last counted without a verdict of a canary; else null.',
  ),
};

export type MachineDeaths = z.infer<z.ZodObject<typeof machineDeaths>>;

export const NO_MACHINE_DEATHS: MachineDeaths = emptyOf(machineDeaths);
