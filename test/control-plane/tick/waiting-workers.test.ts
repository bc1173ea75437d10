/** Workers that wait for a host, such as a hub of models. */
import assert from 'node:assert/strict';
import {aWorkingWorld} from '../../world/scenes/one-worker.ts';
import {A0} from '../../world/scenes/places.ts';

const COUNTS = {samples_done: 0, samples_total: null, tokens_done: 0, shards_done: 0, tokens_per_s: null};
const waiting = (tries: number) => ({...COUNTS, waits_for: `hub.example: ConnectError, try ${tries}`});

describe('a worker that waits for a host', () => {
  it('shows the host in its document until a heartbeat without it', async () => {
    const world = await aWorkingWorld();
    await world.agent(A0).heartbeat(waiting(7));
    assert.equal((await world.worker(A0))?.waits_for, 'hub.example: ConnectError, try 7');
    await world.agent(A0).heartbeat(COUNTS);
    assert.equal((await world.worker(A0))?.waits_for, null);
  });

  it('makes no progress by further tries', async () => {
    const world = await aWorkingWorld();
    const agent = world.agent(A0);
    agent.silent = true;
    await agent.heartbeat(waiting(1));
    const since = (await world.worker(A0))?.progress_at;
    await world.minute();
    await agent.heartbeat(waiting(2));
    const worker = await world.worker(A0);
    assert.deepEqual([worker?.waits_for, worker?.progress_at], [waiting(2).waits_for, since]);
  });
});
