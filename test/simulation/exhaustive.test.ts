import assert from 'node:assert/strict';
import {completeSpec, specHash} from '../../shared/contracts/spec/spec.ts';
import {planShards, shardBytes, shardMetadata, someLines} from '../world/shard-plan.ts';
import {World} from '../world/world.ts';
import {KINDS} from './conditions/faults.ts';
import {simulate} from './world.ts';

/** Two streams with three shards in total, and two slots. The only faults are crashes of functions. */
const SMALL = {without: new Set([...KINDS, 'long storm']), plan: {slots: 2, lines: [4, 2]}};
/** The first seed of the search for a world in which both slots have work. */
const FIRST_SEED = Number(process.env.GLEANER_EXHAUSTIVE_SEED ?? 1);

async function worldOfTwo(): Promise<{seed: number; calls: number}> {
  for (let seed = FIRST_SEED; seed < FIRST_SEED + 100; seed++) {
    const {calls, seen, violation} = await simulate(seed, SMALL);
    assert.equal(violation, undefined);
    if (seen['a node is: READY'] === 2) return {seed, calls};
  }
  assert.fail('no world has work for both slots');
}

async function breaches(seed: number, crashes: number[]): Promise<string[]> {
  const {violation} = await simulate(seed, {...SMALL, crashes: new Set(crashes)});
  return violation === undefined ? [] : [`a function crashes at call ${crashes}: ${violation}`];
}

describe('a small world', () => {
  it('holds when a function crashes before or after every eightieth call (GLEANER_CALLS=1: every call)', async () => {
    const {seed, calls} = await worldOfTwo();
    assert.ok(calls > 100, `${calls} calls`);
    const every = Number(process.env.GLEANER_CALLS ?? 80);
    const found: string[] = [];
    for (let call = 1; call <= calls; call += 0.5 * every) found.push(...(await breaches(seed, [call])));
    assert.deepEqual(found, []);
  }).timeout(1_200_000);

  it('holds when two functions crash at every 120,001st pair of calls (GLEANER_PAIRS=1: every pair)', async () => {
    const {seed, calls} = await worldOfTwo();
    const every = Number(process.env.GLEANER_PAIRS ?? 120_001);
    const found: string[] = [];
    let pair = 0;
    for (let first = 1; first <= calls; first += 0.5)
      for (let second = first + 0.5; second <= calls + 20; second += 0.5)
        if (++pair % every === 0) found.push(...(await breaches(seed, [first, second])));
    assert.deepEqual(found, []);
  }).timeout(7_200_000);
});

/** Every subset of the items, with the empty one. */
function subsets([item, ...others]: readonly number[]): number[][] {
  if (item === undefined) return [[]];
  const without = subsets(others);
  return [...without, ...without.map(subset => [item, ...subset])];
}

/** Every different order of the items. Items may be equal. */
function orders(items: readonly number[]): number[][] {
  if (items.length === 0) return [[]];
  return [...new Set(items)].flatMap(item => {
    const place = items.indexOf(item);
    return orders(items.toSpliced(place, 1)).map(rest => [item, ...rest]);
  });
}

/** Up to this number of events, repetitions are mixed into every order. For more events, repetitions come at the end. */
const MAX_MIXED = Number(process.env.GLEANER_MIXED ?? 3);

/** Tests one of this many deliveries. */
const EVERY_DELIVERY = Number(process.env.GLEANER_DELIVERIES ?? 48);

function deliveries(): number[][] {
  return subsets([0, 1, 2, 3, 4]).flatMap(events =>
    subsets(events).flatMap(twice =>
      events.length <= MAX_MIXED
        ? orders([...events, ...twice])
        : orders(events).map(order => [...order, ...twice.toReversed()]),
    ),
  );
}

describe('five events', () => {
  const text = someLines(6, 'line', 3);
  const object = 'datasets/my-run/stream_000.jsonl';

  /** A world with all shards of a stream in the bucket, before the first event is delivered. */
  async function aWorldWithoutEvents(): Promise<World> {
    const world = new World();
    world.objects.put(object, text);
    const {crc32c} = (await world.objects.head(object)) ?? assert.fail();
    const spec_hash = specHash(completeSpec({}, world.deps.config).spec);
    const work = {run: 'my-run', stream: '000', spec_hash, dataset: {crc32c}};
    for (const plan of planShards(text)) {
      const name = `activations/my-run/tpu_0/shard_000${plan.shard}.safetensors`;
      world.objects.put(name, shardBytes(plan, work), shardMetadata(plan, work, 1));
    }
    world.control({action: 'start', run: 'my-run'});
    return world;
  }

  it('in any order, each delivered once, twice or never, count the stored shards', async () => {
    const all = deliveries();
    for (const delivered of all.filter((_, index) => index % EVERY_DELIVERY === 0)) {
      const world = await aWorldWithoutEvents();
      const messages = world.queue.splice(0);
      assert.equal(messages.length, 5);
      for (const index of delivered) await world.handle(messages[index] ?? assert.fail());
      // The next resync of the bucket replaces a lost event.
      if (new Set(delivered).size < 5) {
        world.now += 3600_000;
        await world.tick();
        await world.deliverAll();
      }
      const stream = await world.stream('my-run', '000');
      const counted = [
        stream?.status,
        stream?.total_shards,
        stream?.total_samples_processed,
        stream?.rejected_samples,
      ];
      assert.deepEqual(counted, ['completed', 3, 5, 1], `delivered ${delivered}`);
      await world.store.close();
    }
    assert.ok(all.length > 8000, String(all.length));
  }).timeout(7_200_000);
});
