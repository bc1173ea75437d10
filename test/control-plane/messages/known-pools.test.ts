/** Requests of workers that come at about the same time read their pool once. */
import assert from 'node:assert/strict';
import {KnownPools, poolOf} from '../../../shared/control-plane/caches/pool-cache.ts';
import {withDeployed} from '../../../shared/control-plane/documents/documents.ts';
import {heartbeatOf} from '../../../shared/control-plane/worker-api/answers.ts';
import {paths} from '../../../shared/domain/names.ts';
import {constraint} from '../../../shared/domain/records/constraint.ts';
import {mapFields, pick} from '../../../shared/domain/records/field.ts';
import type {Pool} from '../../../shared/domain/records/pool.ts';
import {poolPaces, poolTerms} from '../../../shared/domain/records/pool-settings.ts';
import {aConfig, at} from '../../world/builders.ts';
import {World} from '../../world/world.ts';

async function aWorld() {
  const world = new World();
  const own = world.deps.config.pool;
  const fast = {...own, pool: 'fast', accelerator: 'v6e-1', poll_s: 2, version: 1};
  await world.store.transaction(async tx => tx.set(paths.pool('fast'), fast));
  const state = {reads: 0, isAway: false};
  const store = {
    ...world.deps.store,
    get: async (path: string) => {
      state.reads += 1;
      if (state.isAway) throw new Error('unavailable');
      return world.store.get(path);
    },
  };
  const knownPools = new KnownPools();
  const find = (name: string) => poolOf({...world.deps, store, knownPools}, name);
  return {world, find, state};
}

describe('the pools that worker-api knows', () => {
  it('are read once by requests that come at the same time', async () => {
    const {find, state} = await aWorld();
    const found = await Promise.all(Array.from({length: 100}, () => find('fast')));
    assert.equal(state.reads, 1);
    for (const pool of found) assert.deepEqual([pool?.accelerator, pool?.poll_s], ['v6e-1', 2]);
  });

  it('are read again after two seconds', async () => {
    const {world, find, state} = await aWorld();
    await find('fast');
    world.now += 2001;
    await find('fast');
    assert.equal(state.reads, 2);
  });

  it('have the settings of the deployment where its own pool has no document', async () => {
    const {world, find} = await aWorld();
    assert.equal((await find('tpu'))?.accelerator, world.deps.config.pool.accelerator);
  });

  it('set the heartbeats of their workers where they ask more often than others', async () => {
    const {world, find} = await aWorld();
    const fast = (await find('fast')) ?? assert.fail();
    const interval = (pool: Pool | undefined) => heartbeatOf(world.deps, pool);
    assert.deepEqual([interval(fast), interval({...fast, poll_s: 60}), interval(undefined)], [2, 20, 20]);
  });

  it('lack a name without a document', async () => {
    const {find} = await aWorld();
    assert.equal(await find('other'), undefined);
  });

  it('are read again after a failed read', async () => {
    const {find, state} = await aWorld();
    state.isAway = true;
    await assert.rejects(find('fast'), /unavailable/);
    state.isAway = false;
    assert.equal((await find('fast'))?.pool, 'fast');
  });
});

describe('the own pool of a deployment that has changed', () => {
  const deployed = aConfig().pool;
  const WAITS = {...constraint('permission', 'us-central1-a'), since_at: at(0)};
  /** Written by messages about other things than settings, and by ticks. */
  const facts = {
    ...{spent_usd: 7, keep: {workers: 2, until_at: at(60)}, source_version: 4},
    ...{source: {bundle: 'b'.repeat(64)}, environment: {...deployed.environment, jax_version: '0.6.1'}},
    limiter: {...deployed.limiter, state: 'stopped', cause: 'person', since_at: at(0)},
    budget_notice: {of: 'tpu', budget_usd: 9, spent_usd: 5, percent: 50},
    jobs_wait: WAITS,
    zones_wait: {
      'us-central1-a': WAITS,
    },
  };
  const terms = {accelerator: 'v4-8', runtime_version: 'old', disk_gb: 11, spot: !deployed.spot};
  const settings = {zones: ['us-east1-d'], workers_per_zone: 9, budget_usd: 3};
  const pace = mapFields(poolPaces, (_, name) => deployed[name] + 7);
  const found = {...deployed, ...terms, ...settings, ...pace, ...facts, later: 'of tomorrow'} as Pool;

  it('has the new settings while no message has changed it, and keeps its state', () => {
    assert.deepEqual(withDeployed(found, deployed), {...deployed, ...facts, later: 'of tomorrow'});
  });

  it('keeps the settings of messages, and has the new kind of its TPUs', () => {
    const paces = pick(poolPaces, deployed);
    const changed = {...found, version: 1};
    const isNew = pick(poolTerms, deployed);
    assert.deepEqual(withDeployed(changed, deployed), {...changed, ...isNew, ...paces});
    const said = {
      ...changed,
      message_times: Object.fromEntries(Object.keys(paces).map(name => [`${name}_at`, at(0)])),
    };
    assert.deepEqual(withDeployed(said, deployed), {...said, ...isNew});
  });
});
