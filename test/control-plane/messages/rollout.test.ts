import assert from 'node:assert/strict';
import {parseValue, tpuMessage, workerRequest} from '../../../shared/contracts/messages/schemas.ts';
import {paths} from '../../../shared/domain/names.ts';
import type {Document} from '../../../shared/ports/ports.ts';
import {aWorldWithAStream} from '../../world/scenes/one-worker.ts';
import {A0, ONE_SLOT} from '../../world/scenes/places.ts';
import {someLines} from '../../world/shard-plan.ts';
import {World} from '../../world/world.ts';

const KINDS = [
  paths.run('my-run'),
  paths.stream('my-run', '000'),
  paths.worker(A0),
  paths.zone('us-central1-a'),
  paths.pool('tpu'),
];

async function change(world: World, path: string, changes: (document: Document) => Document): Promise<void> {
  await world.store.transaction(async tx => {
    const document = await tx.get(path);
    if (document) tx.set(path, changes(document));
  });
}

describe('while the next release is rolled out', () => {
  it('what it adds to a document stays there, whatever this release makes of the rest', async () => {
    const world = new World(ONE_SLOT);
    world.control({action: 'scale', workers_per_zone: 1});
    world.drop('my-run', 0, someLines(20));
    await world.until(
      'a first shard',
      async () => (await world.stream('my-run', '000'))?.total_shards === 1,
      9,
      1,
    );
    for (const path of KINDS)
      await change(world, path, document => ({...document, of_tomorrow: {kept: path}}));
    const before = await Promise.all(KINDS.map(path => world.store.get(path)));
    // A loss, a configuration and the end write every kind of document again.
    world.preempt(A0);
    world.control({action: 'configure', run: 'my-run', priority: 5});
    world.control({action: 'scale', budget_usd: 100});
    await world.untilStoredOnce('my-run', '000', someLines(20));
    for (const [index, path] of KINDS.entries()) {
      const after = await world.store.get(path);
      assert.notDeepEqual(after, before[index], `${path} was written again`);
      assert.deepEqual(after?.of_tomorrow, {kept: path}, path);
    }
  });

  it('what it adds to a lease, a loss and a create stays there too', async () => {
    const world = aWorldWithAStream(20);
    await world.until(
      'work',
      async () => (await world.stream('my-run', '000'))?.status === 'in_progress',
      9,
      1,
    );
    const add = (value: unknown) => ({...(value as Document), of_tomorrow: true});
    await change(world, paths.stream('my-run', '000'), stream => ({...stream, lease: add(stream.lease)}));
    await change(world, paths.zone('us-central1-a'), zone => ({
      ...zone,
      limiter: add(zone.limiter),
    }));
    for (const agent of world.agents.values()) await agent.step();
    await world.minute(1);
    world.tpus.node(A0).state = 'PREEMPTED';
    const stream = await world.store.get(paths.stream('my-run', '000'));
    assert.equal((stream?.lease as Document | undefined)?.of_tomorrow, true);
    await world.minute(1);
    const zone = await world.store.get(paths.zone('us-central1-a'));
    assert.equal((zone?.losses as Document[] | undefined)?.length, 1);
    assert.equal((zone?.limiter as Document | undefined)?.of_tomorrow, true);
  });

  it('what it adds to a message of a machine is passed over', () => {
    const [new_field, lease] = ['of tomorrow', {run: 'r', stream: '000', epoch: 1}];
    const sender = {worker: A0, incarnation: 1, host: 0};
    const message = {action: 'create', worker: A0, incarnation: 1};
    assert.deepEqual(parseValue(tpuMessage, {...message, new_field}, 'it'), message);
    const request = {action: 'heartbeat', ...sender, phase: 'running', lease, progress: null};
    const given = {...request, new_field, lease: {...lease, new_field}};
    assert.deepEqual(parseValue(workerRequest, given, 'it'), request);
  });
});
