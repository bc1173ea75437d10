/** Workers that have been silent for longer than any silence guard holds them. */
import assert from 'node:assert/strict';
import {RELEASE} from '../../../shared/contracts/settings/config.ts';
import {Failures} from '../../../shared/control-plane/calls/failures.ts';
import {servedRecord} from '../../../shared/control-plane/documents/documents.ts';
import {findLost, proveService, storePing} from '../../../shared/control-plane/workers/service-proofs.ts';
import {shardObject} from '../../../shared/domain/names.ts';
import {isServedFor} from '../../../shared/domain/worker/served-time.ts';
import {LONGEST_SILENCE_S} from '../../../shared/domain/zone/silence-guard.ts';
import {at, aWorker, moment, shardMetadataOf, T0} from '../../world/builders.ts';
import {A0} from '../../world/scenes/places.ts';
import {World} from '../../world/world.ts';

describe('a worker that has been silent for over six hours', () => {
  const SILENT_S = LONGEST_SILENCE_S + 1000;
  const cases = [
    {name: 'that has stored a shard within six hours is kept', epoch: 3, age_s: 60, isLost: false},
    {name: 'is lost, though another worker stored a shard of its stream', epoch: 4, age_s: 60, isLost: true},
    {
      name: 'is lost, though it stored a shard when it fell silent',
      epoch: 3,
      age_s: LONGEST_SILENCE_S + 60,
      isLost: true,
    },
  ];
  for (const {name, epoch, age_s, isLost} of cases)
    it(name, async () => {
      const world = new World();
      const suspect = {work: 'my-run/007', epoch: 3, total_shards: 0};
      const worker = aWorker({name: A0, phase: 'working', heartbeat_at: at(0), suspect});
      const now = T0 + SILENT_S * 1000;
      const shard = shardObject('my-run', '007', 1, 'safetensors');
      const created_at = at(SILENT_S - age_s);
      world.objects.put(shard, 'x', shardMetadataOf({epoch: String(epoch)}), {created_at});
      const lost = await findLost(world.deps, new Map([[A0, worker]]), moment(now), new Failures(world.deps));
      assert.deepEqual([...lost], isLost ? [A0] : []);
    });

  it('is not lost while its shards cannot be listed', async () => {
    const world = new World();
    const suspect = {work: 'my-run/007', epoch: 3, total_shards: 0};
    const worker = aWorker({name: A0, phase: 'working', heartbeat_at: at(0), suspect});
    world.deps.objects.list = () => Promise.reject(new Error('503'));
    const now = moment(T0 + SILENT_S * 1000);
    const lost = await findLost(world.deps, new Map([[A0, worker]]), now, new Failures(world.deps));
    assert.equal(lost.size, 0);
  });
});

describe('the time for which worker-api provably works', () => {
  const served = (world: World) => servedRecord.read(world.deps.log, world.store);
  const prove = (world: World, s: number) => {
    const worker = aWorker({name: A0, phase: 'working', heartbeat_at: at(s - 40)});
    world.now = T0 + s * 1000;
    return proveService(world.deps, new Map([[A0, worker]]));
  };

  it('has the heartbeats of missed ticks, also where no ping arrives', async () => {
    const world = new World();
    world.now = T0;
    await storePing(world.deps);
    world.deps.ping = async () => {};
    assert.equal((await prove(world, 600)).proven_at, at(560));
  });

  it('begins again with the next ping when the clock is set back by two hours', async () => {
    const world = new World();
    for (const second of [0, 7200, 60, 120]) {
      world.now = T0 + second * 1000;
      await storePing(world.deps);
    }
    assert.equal(isServedFor(await served(world), at(60), 59), true);
    assert.equal(isServedFor(await served(world), at(120), 1), false);
  });

  it('begins a new count of failed pings after one that arrives', async () => {
    const world = new World();
    const failing = async () => {
      const {failed_pings, failing_since_at} = await served(world);
      return [failed_pings, failing_since_at?.slice(0, 19)];
    };
    world.deps.ping = () => Promise.reject(new Error('403'));
    await prove(world, 60);
    await prove(world, 120);
    assert.deepEqual(await failing(), [2, at(60).slice(0, 19)]);
    await storePing(world.deps);
    assert.deepEqual(await failing(), [0, undefined]);
  });

  for (const {name, release, pings} of [
    {name: 'ends while another release has just written a worker', release: 'f'.repeat(40), pings: 0},
    {name: 'goes on beside a worker of this release that is left alone', release: RELEASE, pings: 1},
  ])
    it(name, async () => {
      const world = new World();
      let made = 0;
      world.deps.ping = async () => {
        made += 1;
      };
      const document = {release, phase: 'working', updated_at: at(0)};
      world.deps.slotsLeftAlone.set('tpu-us-central1-a-1', document);
      await prove(world, 60);
      assert.equal(made, pings);
    });
});
