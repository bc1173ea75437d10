/** The end that the tests expect of a stream, and a description of a world for a test that fails. */
import assert from 'node:assert/strict';
import {shardObject} from '../../shared/domain/names.ts';
import {good, linesIn, planShards, storedText} from './shard-plan.ts';
import type {World} from './world.ts';

/** Every sample of the stream is stored once: the shards follow each other and hold its lines, the bad lines counted. */
export async function assertStoredOnce(
  world: World,
  run: string,
  stream: string,
  text: string,
): Promise<void> {
  const objectOf = (shard: number) => shardObject(run, stream, shard, 'safetensors');
  const plans = planShards(text);
  assert.deepEqual(
    world.objects.names(objectOf(1).replace(/shard_.*/, 'shard_')),
    plans.map(({shard}) => objectOf(shard)),
  );
  for (const plan of plans)
    assert.equal(linesIn(world.objects.bytes(objectOf(plan.shard))), storedText(plan));
  const lines = (plans.at(-1)?.last ?? -1) + 1;
  const samples = plans.flatMap(good).length;
  assert.partialDeepStrictEqual(await world.stream(run, stream), {
    status: 'completed',
    last_processed_sample_idx: lines - 1,
    total_samples_processed: samples,
    rejected_samples: lines - samples,
    total_shards: plans.length,
    lease: null,
  });
}

export async function describe(world: World): Promise<string> {
  const [runs, workers] = [await world.store.query('runs'), await world.store.query('workers')];
  const streams = (await Promise.all(runs.map(({path}) => world.store.query(`${path}/streams`)))).flat();
  const described = {
    nodes: world.tpus.states(),
    queue: world.queue.length,
    runs: runs.map(({id, data}) => [id, data.status, data.reason]),
    streams: streams.map(({path, data}) => [
      path,
      data.status,
      data.total_shards,
      data.lease,
      data.last_error,
    ]),
    workers: workers.map(({id, data}) => [id, data.phase, data.incarnation, data.work, data.last_death]),
    agents: [...world.agents.values(), ...world.zombies].map(({worker, incarnation, state}) => [
      worker,
      incarnation,
      state,
    ]),
    logs: world.logs.filter(({severity}) => severity === 'ERROR').slice(-5),
  };
  return JSON.stringify(described, null, 1);
}
