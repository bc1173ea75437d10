/** Workers that have been silent for longer than any brake holds them. */
import assert from 'node:assert/strict';
import {Failures} from '../../shared/control-plane/failures.ts';
import {findLost} from '../../shared/control-plane/workers/service-proofs.ts';
import {shardObject} from '../../shared/domain/names.ts';
import {LONGEST_SILENCE_S} from '../../shared/domain/zone/silence-brake.ts';
import {at, aWorker, moment, shardMetadataOf, T0} from '../support/builders.ts';
import {World} from '../support/control-plane-harness.ts';
import {A0} from '../support/places.ts';

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
});
