/** The budget of a run at the grant: requests between two ticks count each other. */
import assert from 'node:assert/strict';
import {runRecords, streamRecords, workerRecords} from '../../../shared/control-plane/documents/documents.ts';
import {storeRunTotals} from '../../../shared/control-plane/runs/summarize-run.ts';
import {streamId, workerName} from '../../../shared/domain/names.ts';
import {NO_STREAMS, type Run} from '../../../shared/domain/records/run.ts';
import {aRun, aStream, aWorker} from '../../world/builders.ts';
import {World} from '../../world/world.ts';

const WORKERS = 10;
const NO_COST = {cost_usd: 0, download_usd: 0};
const nameOf = (slot: number) => workerName({pool: 'tpu', zone: 'us-central1-a', slot});
const ask = (world: World, slot: number) =>
  world.api({action: 'lease', worker: nameOf(slot), incarnation: 2, host: 0, loaded: null});
const runOf = async (world: World): Promise<Run> => (await world.run('my-run')) ?? assert.fail();

/** A run with pending streams, and idle workers that cost $0.06 in the minutes of their delete. */
async function aWorldOf(budget_usd: number | null, streams_pending = WORKERS): Promise<World> {
  const world = new World();
  await world.store.transaction(async tx => {
    runRecords.set(tx, aRun({streams_pending, budget_usd}));
    for (let index = 0; index < WORKERS; index++) {
      const stream = streamId(index);
      const object = `datasets/my-run/stream_${stream}.jsonl`;
      streamRecords.set(tx, aStream({stream, worker_id: index, object}));
      workerRecords.set(tx, aWorker({name: nameOf(index), phase: 'idle', usd_per_hour: 1.2}));
    }
  });
  return world;
}

async function grantsOf(world: World): Promise<number> {
  const slots = Array.from({length: WORKERS}, (_, slot) => slot);
  const answers = await Promise.all(slots.map(slot => ask(world, slot)));
  return answers.filter(({body}) => body.action === 'work').length;
}

const totalsOf = ({streams_in_progress, streams_pending}: Run) => ({streams_in_progress, streams_pending});

describe('a budget at the grant', () => {
  it('carries as many workers that ask at once as it carries one after the other', async () => {
    const world = await aWorldOf(0.2);
    const before = await runOf(world);
    assert.equal(await grantsOf(world), 3);
    const run = await runOf(world);
    assert.deepEqual(totalsOf(run), {streams_in_progress: 3, streams_pending: 7});
    assert.equal(run.version, before.version);
  });

  it('carries no more workers where no tick has counted the streams of the run', async () => {
    const world = await aWorldOf(0.2, 0);
    assert.equal(await grantsOf(world), 3);
    assert.equal((await runOf(world)).streams_in_progress, 3);
  });

  it('keeps the grants that a tick does not know when it writes its counts', async () => {
    const world = await aWorldOf(0.2);
    const seen = await runOf(world);
    await grantsOf(world);
    const late = {...NO_STREAMS, streams_pending: WORKERS, failed: undefined};
    await storeRunTotals(world.deps, seen, late, NO_COST);
    assert.deepEqual(totalsOf(await runOf(world)), {streams_in_progress: 3, streams_pending: 7});
    const counted = {...late, streams_pending: WORKERS - 1, streams_in_progress: 1};
    await storeRunTotals(world.deps, await runOf(world), counted, NO_COST);
    assert.deepEqual(totalsOf(await runOf(world)), {streams_in_progress: 1, streams_pending: 9});
  });
});
