/** Changes of many TPUs at once: Firestore wants new traffic of a collection to begin with 500 writes a second. */
import assert from 'node:assert/strict';
import {runRecords, streamRecords, workerRecords} from '../../../shared/control-plane/documents/documents.ts';
import {watchWrites} from '../../../shared/control-plane/documents/watched-store.ts';
import {streamId, streamObject, workerName} from '../../../shared/domain/names.ts';
import {aLeasedStream, aRun, at, aWorker} from '../../world/builders.ts';
import {sendAlone} from '../../world/people.ts';
import {ZONE} from '../../world/scenes/places.ts';
import {World} from '../../world/world.ts';

const WORKERS = 220;
/** Documents of a transaction that make it a batch. */
const BATCH = 10;

/** A world in which each TPU works on a stream of the run. */
async function aFullWorld(run: object = {}): Promise<World> {
  const world = new World({
    GLEANER_ZONES: ZONE,
    GLEANER_WORKERS_PER_ZONE: String(WORKERS),
    GLEANER_MAX_WORKERS: '1000',
  });
  await world.store.transaction(async tx => {
    runRecords.set(tx, aRun({streams_in_progress: WORKERS, ...run}));
    for (let slot = 0; slot < WORKERS; slot++) {
      const [name, stream] = [workerName({pool: 'tpu', zone: ZONE, slot}), streamId(slot)];
      const lease = {worker: name, incarnation: 2, epoch: 3};
      const work = {phase: 'working', work: `my-run/${stream}`, epoch: 3} as const;
      const heard = {heartbeat_at: at(0), claimed_at: at(0), ready_at: at(0), agent_at: at(0)};
      workerRecords.set(tx, aWorker({name, ...work, ...heard}));
      const object = streamObject('my-run', stream);
      streamRecords.set(tx, aLeasedStream({stream, worker_id: slot, object, lease}));
    }
  });
  return world;
}

/** The most batches of TPUs that are written at once while the work goes on, and all that are. */
async function batchesAtOnce(
  world: World,
  work: () => Promise<unknown>,
): Promise<{most: number; all: number}> {
  const {store} = world.deps;
  let [open, most, all] = [0, 0, 0];
  world.deps.store = {
    ...store,
    transaction: work =>
      store.transaction(async tx => {
        let written = 0;
        const result = await work(watchWrites(tx, path => (written += Number(path.startsWith('workers/')))));
        if (written < BATCH) return result;
        open += 1;
        [most, all] = [Math.max(most, open), all + 1];
        await new Promise(resolve => setImmediate(resolve));
        open -= 1;
        return result;
      }),
  };
  await work();
  return {most, all};
}

describe('a mass change of TPUs', () => {
  for (const [name, run, change] of [
    [
      'an update of their source',
      {},
      world => sendAlone(world, {action: 'update', source: {bundle: 'b'.repeat(64)}}),
    ],
    [
      'a command on their hosts',
      {},
      async world => {
        world.exec({exec: 'e1', target: 'all', argv: ['hostname'], timeout_s: 60});
        await world.deliverNext('exec');
      },
    ],
    ['a pause of their run', {status: 'paused'}, world => world.tick()],
  ] as [string, object, (world: World) => Promise<unknown>][])
    it(`writes two batches at once: ${name}`, async () => {
      const world = await aFullWorld(run);
      assert.deepEqual(await batchesAtOnce(world, () => change(world)), {most: 2, all: 5});
    });
});
