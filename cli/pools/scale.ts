import {requireChange} from '../terminal/fields.ts';

/** Settings of a pool that `gleaner scale` and `gleaner tpus create` change. */
export type PoolChange = {
  workers_per_zone?: number;
  zones?: string[];
  provisioning?: string;
  budget_usd?: number | null;
  poll_s?: number;
  job_wait_s?: number;
  if_version?: number;
};

export function scaleMessage(pool: string | undefined, change: PoolChange): object {
  const {if_version, workers_per_zone, zones, provisioning, budget_usd, poll_s, job_wait_s} = change;
  const settings = requireChange({workers_per_zone, zones, provisioning, budget_usd, poll_s, job_wait_s});
  // Undefined fields are not in the JSON.
  return {action: 'scale', pool, ...settings, if_version};
}
