import {mapFields, type ValuesOf} from '../../shared/domain/records/field.ts';
import {poolSettings} from '../../shared/domain/records/pool-settings.ts';
import {requireChange} from '../terminal/field-options.ts';

/** Settings of a pool that `gleaner scale` and `gleaner tpus create` change. */
export type PoolChange = Partial<ValuesOf<typeof poolSettings>> & {zones?: string[]; if_version?: number};

export function scaleMessage(pool: string | undefined, change: PoolChange): object {
  const {if_version, zones} = change;
  const settings = requireChange({zones, ...mapFields(poolSettings, (_, name) => change[name])});
  // Undefined fields are not in the JSON.
  return {action: 'scale', pool, ...settings, if_version};
}
