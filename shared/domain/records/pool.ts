import {z} from 'zod';
import {count, dollars, instant, kept, message_times, orNull, stored, text} from '../fields.ts';
import {msOf} from '../time.ts';
import {budgetMark} from './budget-marks.ts';
import {waiting} from './constraint.ts';
import {defaultsOf} from './field.ts';
import {storedShape} from './field-schema.ts';
import {limiterField, OPEN} from './limiter.ts';
import {poolSettings, poolTerms} from './pool-settings.ts';
import {type Environment, NO_ENVIRONMENT, type Source} from './source.ts';

/** TPUs that stay without work until a time, for the next job or command. */
const keep = stored({workers: count, until_at: instant});

/**
 * A set of identical TPU slots, numbered from 0 in each zone. The deployment sets the first values; messages change them. The limiter applies
 * to creates in every zone.
 */
export const poolDocument = stored({
  pool: text.describe('Name of the pool.'),
  ...storedShape(poolTerms),
  disk_gb: orNull(count).describe(poolTerms.disk_gb.means),
  zones: z.array(text).min(1).describe('Zones of the pool, in order.'),
  ...storedShape(poolSettings),
  version: count.describe(
    'Count of messages that changed the pool. At 0 the settings of the deployment count.',
  ),
  message_times,
  spent_usd: dollars.describe('Dollars of network, and of the incarnations that have ended.'),
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
  ...{provider: 'tpu-api' as const, disk_gb: null, ...defaultsOf(poolSettings)},
  ...{version: 0, message_times: {}, spent_usd: 0, limiter: OPEN},
  ...{source: null, environment: NO_ENVIRONMENT, source_version: 0},
  ...{keep: null, budget_notice: null, jobs_wait: null, zones_wait: {}},
};

/** TPUs that the pool keeps now, whether or not they have work. */
export function keptBy({keep}: Pick<Pool, 'keep'>, now: number): number {
  if (!keep || msOf(keep.until_at) <= now) return 0;
  return keep.workers;
}
