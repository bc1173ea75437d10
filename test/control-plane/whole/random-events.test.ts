import assert from 'node:assert/strict';
import fc from 'fast-check';
import {NoAnswer} from '../../support/fakes/interleaver.ts';
import {seeded} from '../../support/fakes/kernel.ts';
import {World} from '../../support/world/control-plane-harness.ts';
import {BAD_LINE, someLines} from '../../support/world/shard-plan.ts';

/** Happenings of any order; `which` chooses the message, the agent, the node or the zone. */
const KINDS = [
  'deliver',
  'deliver',
  'deliver twice',
  'lose',
  'tick',
  'tick',
  'settle',
  'settle',
  'step',
  'step',
  'step',
  'beat',
  'beat',
  'wait',
  'preempt',
  'preempt with notice',
  'vanish',
  'zombie',
  'zombie works',
  'zombie works',
  'restart',
  'fall silent',
  'fail',
  'sell out',
  'cut off',
  'restore',
  'drop',
  'drop again',
  'pause',
  'resume',
  'recreate',
  'lose answers',
  'lose no answer',
] as const;

type Happening = {kind: (typeof KINDS)[number]; which: number};

const happening: fc.Arbitrary<Happening> = fc.record({kind: fc.constantFrom(...KINDS), which: fc.nat(1000)});
/** One happening, or several that interleave. */
const scripts = fc.array(
  fc.oneof(
    {weight: 3, arbitrary: fc.tuple(happening)},
    {weight: 1, arbitrary: fc.tuple(happening, happening, happening)},
  ),
  {minLength: 10, maxLength: 90, size: 'max'},
);

const STREAMS = [
  someLines(7, 'a'),
  `${someLines(3, 'b')}${BAD_LINE}\n${someLines(3, 'c')}`,
  '{"text":"only one"}',
  someLines(12, 'd'),
];
const ZONES = ['us-central1-a', 'europe-west4-b'];

const pick = <T>(items: Iterable<T>, which: number): T | undefined => {
  const all = [...items];
  return all[which % Math.max(all.length, 1)];
};

class Story {
  readonly world = new World({GLEANER_WORKERS_PER_ZONE: '2'});
  #dropped = 0;

  drop(): void {
    const text = STREAMS[this.#dropped];
    if (text === undefined) return;
    this.world.drop('my-run', this.#dropped, text);
    this.#dropped += 1;
  }

  async happen(happening: Happening): Promise<void> {
    try {
      await this.#happen(happening);
    } catch (error) {
      // A tick or an agent without an answer tries again later.
      if (!(error instanceof NoAnswer)) throw error;
    }
  }

  async #happen({kind, which}: Happening): Promise<void> {
    const {world} = this;
    const {queue, tpus} = world;
    const ready = [...tpus.nodes.values()].filter(({state}) => state === 'READY');
    const node = pick(ready, which);
    const agent = pick(world.agents.values(), which);
    const zone = pick(ZONES, which) ?? '';
    switch (kind) {
      case 'deliver':
        await world.deliver(which % Math.max(queue.length, 1));
        return;
      case 'deliver twice': {
        const message = pick(queue, which);
        if (message) queue.push(message);
        return;
      }
      case 'lose':
        if (queue.length > 0) queue.splice(which % queue.length, 1);
        return;
      case 'tick':
        return world.tick();
      case 'settle':
        return world.settle();
      case 'step':
        return agent?.step();
      case 'beat':
        return agent?.beat();
      case 'wait':
        world.now += which * 300;
        return;
      case 'preempt':
        if (!node) return;
        node.state = which % 3 === 0 ? 'TERMINATED' : 'PREEMPTED';
        world.agents.delete(node.name);
        return;
      case 'preempt with notice':
        if (!node) return;
        await world.agents.get(node.name)?.preempted();
        node.state = 'PREEMPTED';
        return;
      case 'vanish':
        if (!node) return;
        world.agents.delete(node.name);
        tpus.nodes.delete(node.name);
        return;
      case 'zombie':
        if (node && world.agents.has(node.name)) world.zombify(node.name);
        return;
      case 'zombie works':
        return which % 4 === 0 ? pick(world.zombies, which)?.beat() : pick(world.zombies, which)?.step();
      case 'restart':
        if (node) world.boot(node.name);
        return;
      case 'fall silent':
        if (agent && which % 2 === 0) agent.silent = true;
        return;
      case 'fail':
        if (agent && which % 5 === 0) agent.failure = {kind: 'infrastructure', reason: 'the disk is full'};
        return;
      case 'sell out':
        tpus.zone(zone).soldOut = true;
        return;
      case 'cut off':
        tpus.zone(zone).unreachable = true;
        return;
      case 'restore':
        tpus.openZones();
        tpus.openZones();
        return;
      case 'drop':
        return this.drop();
      case 'drop again':
        if (this.#dropped > 0)
          world.drop('my-run', which % this.#dropped, STREAMS[which % this.#dropped] ?? '');
        return;
      case 'pause':
      case 'resume':
        world.control({action: kind, run: 'my-run'});
        return;
      case 'recreate':
        if (node) world.control({action: 'recreate', worker: node.name});
        return;
      case 'lose answers':
        return world.outage.begin(0.1, seeded(which));
      case 'lose no answer':
        return world.outage.end();
      default:
        kind satisfies never;
    }
  }

  /** Asserts the invariants of every moment. */
  async assertSafe(): Promise<void> {
    const streams = await this.world.store.query('runs/my-run/streams');
    const holders = streams.flatMap(({data}) => (data.lease ? [JSON.stringify(data.lease)] : []));
    assert.equal(new Set(holders).size, holders.length);
    for (const {data} of streams) assert.equal(data.status === 'in_progress', data.lease !== null);
    const lives = this.world.tpus.made.map(life => life.split('#'));
    for (const [index, [name, incarnation]] of lives.entries()) {
      const earlier = lives.slice(0, index).filter(life => life[0] === name);
      assert.ok(
        earlier.every(life => Number(life[1]) <= Number(incarnation)),
        this.world.tpus.made.join(),
      );
    }
  }

  /** Ends all faults, drops the rest of the streams, and lets time go by. */
  async endWell(): Promise<void> {
    const {world} = this;
    for (let index = 0; index < STREAMS.length; index++) this.drop();
    world.outage.end();
    world.tpus.openZones();
    world.tpus.openZones();
    for (const zombie of world.zombies) for (let step = 0; step < 3; step++) await zombie.step();
    world.zombies.length = 0;
    for (const agent of world.agents.values()) agent.failure = undefined;
    await world.deliverAll();
    world.control({action: 'start', run: 'my-run'});
    await world.untilAsleep(45);
    for (const [index, text] of STREAMS.entries()) await world.assertStoredOnce('my-run', `00${index}`, text);
    const run = await world.run('my-run');
    assert.deepEqual([run?.status, run?.streams_completed, run?.reason], ['completed', STREAMS.length, null]);
  }
}

describe('a run under random events', () => {
  it('completes with each sample stored once, and leaves no TPU and no message', async () => {
    await fc.assert(
      fc.asyncProperty(scripts, fc.nat(), async (script, seed) => {
        const story = new Story();
        const random = seeded(seed);
        for (const together of script) {
          if (together.length === 1) await story.happen(together[0]);
          else
            await story.world.interleaver.run(
              random,
              together.map(one => () => story.happen(one)),
            );
          await story.assertSafe();
        }
        await story.endWell();
        await story.world.store.close();
      }),
      {numRuns: Number(process.env.GLEANER_RANDOM_RUNS ?? 15)},
    );
  });
});
