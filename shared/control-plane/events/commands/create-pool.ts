import {isDeepStrictEqual} from 'node:util';
import {z} from 'zod';
import {Rejected} from '../../../contracts/errors.ts';
import {poolName} from '../../../contracts/messages/job-schemas.ts';
import {version} from '../../../contracts/messages/schemas.ts';
import {decideNewPool, decideScale, type PoolSettings} from '../../../domain/commands/settings.ts';
import {poolNameProblem} from '../../../domain/deployment.ts';
import {runtimeOf} from '../../../domain/fleet/accelerators.ts';
import {pick} from '../../../domain/records/field.ts';
import {messageShape} from '../../../domain/records/field-schema.ts';
import {NEW_POOL, type Pool} from '../../../domain/records/pool.ts';
import {poolPaces, poolSettings, poolTerms} from '../../../domain/records/pool-settings.ts';
import {DISK_GB} from '../../../domain/records/providers.ts';
import {
  type Environment,
  environment,
  internetNeed,
  NO_ENVIRONMENT,
  source,
} from '../../../domain/records/source.ts';
import type {Filter} from '../../../ports/ports.ts';
import {forEachConcurrently} from '../../calls/concurrency.ts';
import type {Deps} from '../../deps.ts';
import {FAILED, leftAlone, poolRecords, runRecords} from '../../documents/documents.ts';
import {isOpenTask, startTask} from '../../documents/tasks.ts';
import {command, conclude} from './command.ts';
import {changes, limitsOf, recordStranded} from './pool-commands.ts';

const schema = z.strictObject({
  action: z.literal('pool'),
  pool: poolName,
  ...messageShape(poolTerms),
  ...changes,
  source: source.nullable().optional(),
  environment: environment.partial().optional(),
  if_version: version.optional(),
});

export const pool = command({
  schema,
  decide: async ({deps, tx, published_at}, {action: _, pool: name, if_version, ...given}) => {
    const existing = await poolRecords.find(tx, name, deps.config.pool);
    const limits = await limitsOf(deps, name);
    const fields = Object.keys(given).filter(field => field in changes);
    const decision = existing
      ? decideScale(existing, settingsOf(deps, existing, given), if_version, limits, published_at)
      : decideNewPool(newPool(deps, name, given), limits, fields, published_at);
    return conclude(decision, next => poolRecords.set(tx, next), {pool: name});
  },
  after: async (deps, {pool}) => {
    await recordStranded(deps, pool);
    await registerWaiting(deps);
  },
});

/** Most runs without a spec that a message checks again. The next resync checks the others. */
const MOST_WAITING = 100;

/** Registers the streams of runs without a spec: their `run.json` may have named this pool before it existed. */
async function registerWaiting(deps: Deps): Promise<void> {
  const where: Filter[] = [FAILED, {field: 'spec', op: '==', value: null}];
  const stored = await deps.store.query('runs', {where, limit: MOST_WAITING});
  const waiting = runRecords.parseAll(stored, leftAlone(deps.log));
  await forEachConcurrently(waiting, ({run}) => startTask(deps, {task: 'register', run}, isOpenTask));
}

type Given = Omit<z.infer<typeof schema>, 'action' | 'pool' | 'if_version'>;

/** The pool of a message, with the deployment's values of optional keys. Throws `Rejected`, which names the missing ones. */
function newPool({config}: Deps, name: string, given: Given): Pool {
  const why = poolNameProblem(name, config.deployment);
  if (why) throw new Rejected(why);
  const {accelerator, zones, workers_per_zone, ...others} = given;
  if (!accelerator || !zones || workers_per_zone === undefined)
    throw new Rejected(
      `there is no pool "${name}": a new pool needs accelerator, zones and workers_per_zone`,
    );
  const {provider = 'tpu-api'} = given;
  const {runtime_version = runtimeOf(accelerator, provider)} = given;
  const {disk_gb = provider === 'compute-engine' ? DISK_GB : null} = given;
  const {source = null, spot = config.pool.spot} = given;
  const environment = {...NO_ENVIRONMENT, ...given.environment} as Environment;
  const needs = internetNeed(source, environment);
  if (needs && !config.has_internet)
    throw new Rejected(
      `${needs} needs the internet, which workers of this deployment do not reach (GLEANER_INTERNET): use a code bundle`,
    );
  const code = {source, environment, source_version: given.source || given.environment ? 1 : 0};
  const terms = {provider, accelerator, runtime_version, disk_gb, spot, zones};
  const settings = {...pick(poolPaces, config.pool), ...pick(poolSettings, others)};
  return {...NEW_POOL, pool: name, ...terms, workers_per_zone, ...settings, ...code} as Pool;
}

/** The settings of the message for an existing pool. Throws `Rejected` for a value that cannot change, or that "update" changes. */
function settingsOf({config}: Deps, found: Pool, given: Given): PoolSettings {
  for (const key of Object.keys(poolTerms) as (keyof typeof poolTerms)[]) {
    if (given[key] === undefined || given[key] === found[key]) continue;
    const advice =
      found.pool === config.pool.pool ? 'the deployment sets it for its own pool' : 'create another pool';
    throw new Rejected(`pool "${found.pool}" has ${key} ${found[key]}, which cannot change: ${advice}`);
  }
  const {source = found.source, environment = found.environment} = given;
  const code = [source, {...found.environment, ...environment}];
  if (!isDeepStrictEqual(code, [found.source, found.environment]))
    throw new Rejected(
      `pool "${found.pool}" exists: change its source and environment with the action "update"`,
    );
  const settings = Object.fromEntries(Object.entries(given).filter(([key]) => key in changes));
  if (Object.keys(settings).length === 0)
    throw new Rejected(`pool "${found.pool}" exists: say what to change: ${Object.keys(changes).join(', ')}`);
  return settings;
}
