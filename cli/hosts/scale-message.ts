/** Message `scale` of the options that `gleaner scale` and `gleaner tpus create` share. */
import {type Budget, budgetField} from '../terminal/arguments.ts';
import {CliError} from '../terminal/errors.ts';

export type PoolChange = {
  workersPerZone?: number;
  zones?: string[];
  provisioning?: string;
  budgetUsd?: Budget;
  pollS?: number;
  ifVersion?: number;
};

export function scaleMessage(pool: string | undefined, change: PoolChange): object {
  const {
    workersPerZone: workers_per_zone,
    zones,
    provisioning,
    pollS: poll_s,
    ifVersion: if_version,
  } = change;
  const budget_usd = budgetField(change.budgetUsd);
  const settings = {workers_per_zone, zones, provisioning, budget_usd, poll_s};
  if (Object.values(settings).every(value => value === undefined))
    throw new CliError(
      'say what to change: --workers-per-zone, --zones, --provisioning, --budget-usd or --poll-s',
    );
  // Undefined fields are not in the JSON.
  return {action: 'scale', pool, ...settings, if_version};
}
