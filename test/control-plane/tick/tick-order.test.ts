/** The order of a tick: money and deletes first, long work last and by others. */
import assert from 'node:assert/strict';
import {runRecords, streamRecords, workerRecords} from '../../../shared/control-plane/documents/documents.ts';
import {metadataObject} from '../../../shared/domain/names.ts';
import {aRun, aStream, at} from '../../world/builders.ts';
import {anIdleWorker, aPausedWorld} from '../../world/scenes/paused-fleet.ts';
import {A0} from '../../world/scenes/places.ts';

describe('the order of a tick', () => {
  it('has budgets and deletes before creates, creates before long work, and reads no metadata.json itself', async () => {
    const world = await aPausedWorld(8);
    const done = aStream({run: 'done', status: 'completed', finished: true});
    await world.store.transaction(async tx => {
      runRecords.set(tx, aRun({run: 'done'}));
      streamRecords.set(tx, done);
      runRecords.set(tx, aRun({run: 'poor', budget_usd: 1, spent_usd: 2}));
      const lease = {worker: A0, incarnation: 2, epoch: 1};
      streamRecords.set(tx, aStream({run: 'poor', status: 'in_progress', epoch: 1, lease}));
      const worker = anIdleWorker({name: A0, phase: 'working', work: 'poor/007', epoch: 1});
      workerRecords.set(tx, {...worker, claimed_at: at(0)});
    });
    // Slot 7 has no node, and a run with work wants one there.
    const empty = 'tpu-us-central1-a-7';
    world.tpus.nodes.delete(empty);
    await world.store.transaction(async tx => {
      tx.delete(`workers/${empty}`);
      runRecords.set(tx, aRun({run: 'rich'}));
      for (let stream = 0; stream < 8; stream++)
        streamRecords.set(tx, aStream({run: 'rich', stream: `00${stream}`}));
    });
    world.tpus.node('tpu-us-central1-a-1').state = 'PREEMPTED';
    const calls: string[] = [];
    const {bus, objects, store} = world.deps;
    world.deps = {
      ...world.deps,
      store: {
        ...store,
        transaction: async work => {
          const result = await store.transaction(work);
          const {status} = (await store.get('runs/poor')) ?? {};
          if (status === 'paused' && !calls.includes('pause')) calls.push('pause');
          return result;
        },
      },
      bus: {
        publish: (topic, message) => {
          calls.push(String(message.action ?? message.task));
          return bus.publish(topic, message);
        },
      },
      objects: Object.assign(Object.create(objects), {
        list: async (...args: Parameters<typeof objects.list>) => {
          calls.push('list');
          return objects.list(...args);
        },
        read: async (...args: Parameters<typeof objects.read>) => {
          if (args[0] === metadataObject('done', done.stream)) calls.push('metadata.json');
          return objects.read(...args);
        },
      }),
    };
    await world.tick();
    const first = ['pause', 'delete', 'create', 'list', 'finish'].map(call => calls.indexOf(call));
    assert.ok(!first.includes(-1), calls.join());
    const [pause = 0, , create = 0, list = 0, finish = 0] = first;
    const lastDelete = calls.lastIndexOf('delete');
    assert.ok(pause < lastDelete && lastDelete < Math.min(create, list), calls.join());
    assert.ok(calls.lastIndexOf('create') < finish, calls.join());
    assert.ok(!calls.includes('metadata.json'), calls.join());
    await world.deliverAll();
    assert.ok(calls.includes('metadata.json'), 'the end of the run reads it');
  });
});
