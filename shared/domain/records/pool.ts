import {z} from 'zod';
import {amount, count, dollars, instant, kept, message_times, orNull, stored, text} from '../fields.ts';
import {msOf} from '../time.ts';
import {budgetMark} from './budget-marks.ts';
import {waiting} from './constraint.ts';
import {limiterField, OPEN} from './limiter.ts';
import {provider} from './providers.ts';
import {type Environment, NO_ENVIRONMENT, type Source} from './source.ts';
import {provisioning} from './zone.ts';

/** Seconds until a worker without work asks again, where neither the deployment nor a message says otherwise. */
export const POLL_S = 60;
/** Seconds that a job waits until a worker gives its stream back, where neither says otherwise: see yields.ts. */
export const JOB_WAIT_S = 120;

/** TPUs that stay without work, for the next job or command, until a time. */
const keep = stored({workers: count, until_at: instant});

/**
 * A set of identical TPU slots, numbered from 0 in each zone. The deployment sets the first values; messages change them. The limiter stops
 * the creates of every zone.
 */
export const poolDocument = stored({
  pool: text.describe('Name of the pool.'),
  accelerator: text.describe('Type of each TPU, such as `v5litepod-8`.'),
  provider: provider.describe('Where the TPUs come from: `tpu-api`, or `compute-engine` for instances.'),
  runtime_version: text.describe('Software version of the TPU VMs, or image of the instances.'),
  disk_gb: orNull(count).describe('Size of the boot disk of each instance, in GB. Null with `tpu-api`.'),
  spot: z.boolean().describe('True: the TPUs are Spot VMs, which Google may preempt.'),
  provisioning: provisioning.describe(
    '`node`: asks for nodes at once. `queued-resource`: in the queue. `auto`: in the queue while a zone is sold out. `flex-start`: instances that wait for up to two hours.',
  ),
  zones: z.array(text).min(1).describe('Zones of the pool, in order.'),
  workers_per_zone: count.describe('Slots in each zone.'),
  version: count.describe(
    'Count of messages that changed the pool. At 0 the settings of the deployment count.',
  ),
  message_times,
  budget_usd: dollars
    .nullable()
    .describe('Dollars that TPUs and network of the pool may ever cost. Null: no limit.'),
  spent_usd: dollars.describe('Dollars of network, and of the incarnations that have ended.'),
  poll_s: z
    .number()
    .positive()
    .describe('Seconds until a TPU without work asks again, plus up to a quarter.'),
  job_wait_s: amount.describe(
    'Seconds that a job waits until a TPU gives its stream back after the shard in hand.',
  ),
  keep: orNull(keep).describe('TPUs that stay without work: `workers`, until `until_at`.'),
  source: orNull(kept<Source>()).describe(
    'Code of the jobs of the pool: a `bundle`, or a `repo` with a `branch`, `pr` or `commit`. Null: none.',
  ),
  environment: kept<Environment>().describe(
    'Preparation of a host before jobs: `jax_version`, `setup_script`, `config_file`, `ramfs_dir`.',
  ),
  source_version: count.describe('Count of messages that changed the source or the environment.'),
  limiter: limiterField,
  budget_notice: orNull(budgetMark).describe(
    'The notified mark of the budget: `of`, `budget_usd`, `spent_usd`, `percent`. Null before half of it is spent, and without notifications.',
  ),
  jobs_wait: orNull(waiting).describe('Why its jobs wait, as `waits` of a run. Null while no job waits.'),
  zones_wait: z
    .record(text, waiting)
    .describe('Why each zone gets no further TPU while work waits, by zone, as `waits` of a run.'),
});

export type Pool = z.infer<typeof poolDocument>;

export const NEW_POOL = {
  ...{provider: 'tpu-api' as const, disk_gb: null},
  ...{version: 0, message_times: {}, budget_usd: null, spent_usd: 0, limiter: OPEN},
  ...{source: null, environment: NO_ENVIRONMENT, source_version: 0},
  ...{keep: null, budget_notice: null, jobs_wait: null, zones_wait: {}},
};

/** TPUs that the pool keeps now, with work or without. */
export function keptBy({keep}: Pick<Pool, 'keep'>, now: number): number {
  if (!keep || msOf(keep.until_at) <= now) return 0;
  return keep.workers;
}
