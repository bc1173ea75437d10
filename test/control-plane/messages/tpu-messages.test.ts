/** Messages of topic `tpu`: each applies while the document of its slot and what its decision knew are the same. */
import assert from 'node:assert/strict';
import {TpuError} from '../../../shared/contracts/errors.ts';
import {workerRecords, zoneRecords} from '../../../shared/control-plane/documents/documents.ts';
import {handleTpuMessage} from '../../../shared/control-plane/workers/tpu-operations.ts';
import {OPEN} from '../../../shared/domain/records/limiter.ts';
import type {Worker} from '../../../shared/domain/records/worker.ts';
import {afterRefusal} from '../../../shared/domain/zone/limiter.ts';
import {newZone} from '../../../shared/domain/zone/placement.ts';
import {aTpu, at, aWorker, T0} from '../../world/builders.ts';
import {ONE_SLOT, SLOT, USD_PER_HOUR} from '../../world/scenes/priced-run.ts';
import {someLines} from '../../world/shard-plan.ts';
import {World} from '../../world/world.ts';

const creating = (changes: Partial<Worker> = {}) =>
  aWorker({
    ...{name: SLOT, phase: 'creating', born_at: at(0), asked_at: at(0), usd_per_hour: USD_PER_HOUR},
    ...changes,
  });
const set = (world: World, worker: Worker) =>
  world.store.transaction(async tx => workerRecords.set(tx, worker));

describe('a request to create a node', () => {
  for (const {name, worker = {}, incarnation = 2, refused_s, made, phase} of [
    {name: 'creates it', made: 1, phase: 'creating'},
    {name: 'of an earlier incarnation does nothing', incarnation: 1, made: 0, phase: 'creating'},
    {name: 'at another price is dropped', worker: {usd_per_hour: 1}, made: 0, phase: 'gone'},
    {name: 'of a type with more hosts is dropped', worker: {host_count: 2}, made: 0, phase: 'gone'},
    {name: 'from before a refusal of its zone is refused too', refused_s: 1, made: 0, phase: 'gone'},
    {name: 'from after a refusal of its zone asks again', refused_s: -1, made: 1, phase: 'creating'},
  ])
    it(name, async () => {
      const world = new World(ONE_SLOT);
      await set(world, creating(worker));
      if (refused_s !== undefined) {
        const refusal = {kind: 'no-capacity', reason: 'no', isLate: false, asked_at: null} as const;
        const limiter = afterRefusal(OPEN, refusal, world.deps.config.placement, T0 + refused_s * 1000);
        const zone = {...newZone('us-central1-a', T0), limiter};
        await world.store.transaction(async tx => zoneRecords.set(tx, zone));
      }
      await handleTpuMessage(world.deps, {action: 'create', worker: SLOT, incarnation});
      assert.deepEqual([world.tpus.made.length, (await world.worker(SLOT))?.phase], [made, phase]);
    });

  for (const [losses, often] of [
    [1, 'once'],
    [2, 'twice'],
  ] as const)
    it(`is published though the answer of its commit is lost ${often}`, async () => {
      const world = new World(ONE_SLOT);
      world.drop('my-run', 0, someLines(2));
      while (await world.deliverNext('object'));
      const {store} = world.deps;
      const {transaction} = store;
      let lost = 0;
      store.transaction = async work => {
        const result = await transaction(work);
        const isDecided = (await world.worker(SLOT))?.phase === 'creating';
        if (isDecided && ++lost <= losses) throw new Error('the answer of commit was lost');
        return result;
      };
      await world.tick();
      while (await world.deliverNext('tpu'));
      assert.deepEqual(world.tpus.made, [`${SLOT}#1`]);
    });

  it('that is refused after its slot has another incarnation changes nothing', async () => {
    const world = new World(ONE_SLOT);
    await set(world, creating());
    world.deps.tpus.create = async () => {
      await set(world, creating({incarnation: 3}));
      throw new TpuError('no-capacity', 'us-central1-a', 'no');
    };
    await handleTpuMessage(world.deps, {action: 'create', worker: SLOT, incarnation: 2});
    const {phase, incarnation} = (await world.worker(SLOT)) ?? assert.fail();
    assert.deepEqual([phase, incarnation], ['creating', 3]);
  });
});

describe('a request to delete a node', () => {
  it('of a node that is READY already bills it', async () => {
    const world = new World(ONE_SLOT);
    await set(world, creating({phase: 'deleting'}));
    world.tpus.add(aTpu({name: SLOT}));
    await handleTpuMessage(world.deps, {action: 'delete', worker: SLOT, incarnation: 2});
    assert.notEqual((await world.worker(SLOT))?.ready_at, null);
  });
});
