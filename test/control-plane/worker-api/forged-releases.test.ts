import assert from 'node:assert/strict';
import {runRecords} from '../../../shared/control-plane/documents/documents.ts';
import type {FakeAgent} from '../../world/agent.ts';
import {A0, A1, TWO_SLOTS} from '../../world/scenes/places.ts';
import {wholeStore} from '../../world/scenes/whole-store.ts';
import {someLines} from '../../world/shard-plan.ts';
import {World} from '../../world/world.ts';

type Two = {world: World; victim: FakeAgent; forger: FakeAgent};

/** Two workers, each at work on its own stream. The events of the victim's stored shards are still on their way. */
async function twoWorkers(victimSteps: number): Promise<Two> {
  const world = new World(TWO_SLOTS);
  for (const index of [0, 1]) world.drop('my-run', index, someLines(20, String(index)));
  const isWorking = (name: string) => world.agents.get(name)?.state === 'working';
  await world.until('work', () => isWorking(A0) && isWorking(A1), 9, 1);
  const [victim, forger] = [world.agent(A0), world.agent(A1)];
  for (let step = 0; step < victimSteps; step++) await victim.step();
  return {world, victim, forger};
}

/** A release in the forger's own name and with its own secret, of a lease that it may not hold. */
const released = (lease: object | null, outcome = 'drained') => ({
  ...{action: 'release', worker: A1, incarnation: 1, host: 0},
  ...{lease, outcome, failure: null},
});

/** Sends the request, and checks that it changes no document and publishes no message. */
async function assertNoEffect(world: World, body: object, status: number): Promise<void> {
  const [before, messages] = [await wholeStore(world), world.published.length];
  const answer = await world.api(body);
  assert.equal(answer.status, status, JSON.stringify(answer.body));
  assert.deepEqual(await wholeStore(world), before);
  assert.equal(world.published.length, messages, 'nothing is published');
}

async function endRun(world: World): Promise<void> {
  const run = (await world.run('my-run')) ?? assert.fail();
  await world.store.transaction(async tx => runRecords.set(tx, {...run, status: 'stopped'}));
}

async function isComplete(world: World, lease: FakeAgent['lease']): Promise<boolean> {
  return (await world.stream('my-run', lease?.stream ?? ''))?.status === 'completed';
}

describe('a release of the lease of another worker', () => {
  it('is refused, counts no shard and changes no document', async () => {
    const {world, victim} = await twoWorkers(4);
    await assertNoEffect(world, released(victim.lease), 409);
  });

  it('requests no totals of a run that has ended', async () => {
    const {world, victim} = await twoWorkers(4);
    await endRun(world);
    await assertNoEffect(world, released(victim.lease), 409);
  });

  it('of a complete stream opens no task and wakes no tick', async () => {
    const {world, victim} = await twoWorkers(0);
    const {lease} = victim;
    await world.until('a complete stream', () => isComplete(world, lease));
    await endRun(world);
    await assertNoEffect(world, released(lease), 200);
  });
});

describe('a repeated release after a lost answer', () => {
  it('of a complete stream succeeds and changes no document', async () => {
    const {world, forger} = await twoWorkers(0);
    const {lease} = forger;
    for (let step = 0; step < 20 && forger.lease === lease; step++) await forger.step();
    assert.equal(await isComplete(world, lease), true);
    await assertNoEffect(world, released(lease, 'completed'), 200);
  });
});
