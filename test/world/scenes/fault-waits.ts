/** Each fault of the local cloud in a test world, and what `why` says of it. */
import assert from 'node:assert/strict';
import type {FaultKind} from '../../../emulator/state/faults.ts';
import type {World} from '../world.ts';
import {aRequestedNode, aSilentWorker, aTakenWorker, aWorkingWorld} from './one-worker.ts';
import {A0, ONE_SLOT, ZONE} from './places.ts';
import {aWorldAfter, aWorldWith, soldOut, unfinished, type Wait} from './waits.ts';

const QUEUED = {...ONE_SLOT, GLEANER_PROVISIONING: 'queued-resource'};
const MOVES = {kind: null, about: null} as const;

/** The agent has had its notice and gave its stream back. The node is PREEMPTED. */
async function afterNotice(): Promise<World> {
  const world = await aWorkingWorld();
  await world.agent(A0).preempted();
  world.tpus.node(A0).state = 'PREEMPTED';
  await world.tick();
  await world.tick();
  return world;
}

/** A queued resource of the slot, after a change of it and a tick. */
async function afterQueue(world: World, change: (queued: {state: string}) => unknown): Promise<World> {
  change(world.tpus.queue.get(A0) ?? assert.fail('no queued resource'));
  await world.tick();
  await world.tick();
  return world;
}

export const FAULT_WAITS: Record<FaultKind, Wait> = {
  preempt: {
    name: 'a TPU that was taken and is not gone yet',
    given: () => aTakenWorker(2),
    ...{kind: 'away', about: A0, evidence: /preempted/},
  },
  'preempt-with-notice': {
    name: 'a TPU that was taken after a notice',
    given: afterNotice,
    ...{kind: 'away', about: A0, evidence: /preempted/},
  },
  maintenance: {
    name: 'a TPU that an announced maintenance took',
    given: afterNotice,
    of: A0,
    ...{kind: 'away', about: A0, evidence: /preempted/},
  },
  vanish: {
    name: 'a node that vanished',
    given: async () => {
      const world = await aSilentWorker(({tpus}) => tpus.nodes.delete(A0));
      await world.tick();
      return world;
    },
    ...{kind: 'away', about: A0, evidence: /vanished/},
  },
  dead: {
    name: 'a TPU that fell silent',
    given: () => aSilentWorker(),
    ...{kind: 'away', about: A0, evidence: /sends nothing/},
  },
  restart: {
    name: 'no wait where a TPU restarts at work',
    given: async () => {
      const world = await aWorkingWorld();
      world.boot(A0);
      await world.minute();
      return world;
    },
    ...MOVES,
  },
  cut: {
    name: 'a TPU that worker-api does not hear',
    given: () => aSilentWorker(),
    ...{kind: 'away', about: A0, evidence: /sends nothing/},
  },
  suspend: {
    name: 'a queued resource that is suspended',
    given: async () => {
      const world = await aWorkingWorld(QUEUED);
      world.agent(A0).silent = true;
      return afterQueue(world, () => world.tpus.suspend(world.tpus.node(A0)));
    },
    ...{kind: 'away', about: A0, evidence: /its queued resource is SUSPENDING by Cloud TPU/},
  },
  fail: {
    name: 'a queued resource that fails',
    given: async () => {
      const world = await aWorldWith(soldOut, 2, QUEUED);
      const error = {kind: 'transient' as const, message: 'An internal error has occurred'};
      return afterQueue(world, queued => Object.assign(queued, {state: 'FAILED', error}));
    },
    ...{kind: 'away', about: A0, evidence: /its queued resource FAILED: An internal error has occurred/},
  },
  stockout: {
    name: 'a zone without capacity, and how often it refused',
    given: () => aWorldWith(soldOut, 12),
    ...{kind: 'zone', about: ZONE, evidence: /no capacity in us-central1-a/},
  },
  quota: {
    name: 'a quota that is used up',
    given: () =>
      aWorldWith(world => {
        world.tpus.zone(ZONE).overQuota = true;
      }),
    ...{kind: 'quota', about: ZONE, evidence: /quota exceeded/},
  },
  rate: {
    name: 'creates that Google limits for the whole project',
    given: () => {
      const refused = aWorldWith(world => {
        world.tpus.zone(ZONE).overRate = true;
      });
      return aWorldAfter(refused, 0, () => {});
    },
    ...{kind: 'rate', about: 'the project'},
  },
  unreachable: {
    name: 'a zone that does not answer',
    given: () =>
      aWorldWith(world => {
        world.tpus.zone(ZONE).unreachable = true;
      }, 6),
    ...{kind: 'zone', about: ZONE, evidence: /does not answer/},
  },
  'slow-create': {
    name: 'a create that takes minutes',
    given: () => aWorldWith(unfinished, 3),
    ...{kind: 'coming', about: A0, evidence: /is being created/},
  },
  'endless-create': {
    name: 'creates that never end',
    given: () => aWorldWith(unfinished, 18),
    ...{kind: 'zone', about: ZONE, evidence: /makes no node: .*not READY within/},
  },
  'slow-boot': {
    name: 'a boot that takes minutes',
    given: () =>
      aWorldWith(world => {
        world.isStillborn = () => true;
      }),
    ...{kind: 'coming', about: A0, evidence: /it boots/},
  },
  'late-failure': {
    name: 'creates that fail late',
    given: () =>
      aWorldWith(world => {
        unfinished(world);
        const {list} = world.deps.tpus;
        let lists = 0;
        world.deps.tpus.list = async () => {
          if (++lists % 3 === 0) world.tpus.nodes.clear();
          return list();
        };
      }, 8),
    ...{kind: 'zone', about: ZONE, evidence: /failed late/},
  },
  drop: {
    name: 'a lost request for a node, which a later tick sends again',
    given: () => aWorldAfter(aRequestedNode(), 0, world => void world.queue.splice(0)),
    ...{kind: 'coming', about: A0, evidence: /is being created/},
  },
  double: {
    name: 'no wait where every message arrives twice',
    given: () =>
      aWorldAfter(aWorkingWorld(), 0, async world => {
        for (const message of world.published) await world.handle(message);
      }),
    ...MOVES,
  },
  reorder: {
    name: 'no wait where the messages arrive in another order',
    given: () =>
      aWorldAfter(aWorkingWorld(), 0, async world => {
        for (const message of world.published.toReversed()) await world.handle(message);
      }),
    ...MOVES,
  },
};
