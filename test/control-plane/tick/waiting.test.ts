/** Every cause for which work waits: the tick stores the cause that the test injects, and `why` says it. */
import assert from 'node:assert/strict';
import type {Command} from 'commander';
import {gleanerProgram} from '../../../cli/program.ts';
import type {Cloud} from '../../../client/cloud/cloud.ts';
import {listRejected} from '../../../client/events/read.ts';
import {TPU_STATUSES} from '../../../client/explanations/tpu-status.ts';
import {explain} from '../../../client/views/why.ts';
import type {LocalCloud} from '../../../emulator/cloud.ts';
import {FAULT_KINDS, faultHelp} from '../../../emulator/state/faults.ts';
import {labelsOf} from '../../../shared/domain/deployment.ts';
import {CONSTRAINT_KINDS} from '../../../shared/domain/records/constraint.ts';
import {jobDocument} from '../../../shared/domain/records/job.ts';
import type {Limiter} from '../../../shared/domain/records/limiter.ts';
import {runDocument} from '../../../shared/domain/records/run.ts';
import {streamDocument} from '../../../shared/domain/records/stream.ts';
import {Scratch} from '../../support/machine/a-cloud.ts';
import {gleaner} from '../../support/machine/command.ts';
import {aConfig} from '../../world/builders.ts';
import {send} from '../../world/people.ts';
import {FAULT_WAITS} from '../../world/scenes/fault-waits.ts';
import {aFleet, silence, stopCreates, wait} from '../../world/scenes/fleet.ts';
import {aWorldAtWork} from '../../world/scenes/jobs.ts';
import {aWorkingWorld, aWorldWithAShard, aWorldWithAStream} from '../../world/scenes/one-worker.ts';
import {A0, A1, ONE_SLOT, TWO_SLOTS, ZONE} from '../../world/scenes/places.ts';
import {putInCloud} from '../../world/scenes/put-documents.ts';
import {queueJobs} from '../../world/scenes/second-pool.ts';
import {CEILING_WAITS, STATE_WAITS} from '../../world/scenes/state-waits.ts';
import {aWorldAfter, aWorldWith, LINES, refuse, soldOut, type Wait} from '../../world/scenes/waits.ts';
import {wholeStore} from '../../world/scenes/whole-store.ts';
import {someLines} from '../../world/shard-plan.ts';
import {World} from '../../world/world.ts';

const anOrphan = (world: World, slot: number) => ({
  ...{name: `tpu-${ZONE}-${slot}`, zone: ZONE, state: 'READY', health: 'HEALTHY', symptoms: [], queued: null},
  labels: {...labelsOf('gleaner'), 'gleaner-pool': 'tpu', 'gleaner-incarnation': '1'},
  created_at: new Date(world.now).toISOString(),
});

function addForeign(world: World, name: string): void {
  world.tpus.add({
    ...{name, zone: ZONE, state: 'READY', health: 'HEALTHY', symptoms: [], queued: null},
    labels: {},
    created_at: new Date(world.now).toISOString(),
  });
}

function hidePrices({deps: {store}}: World): void {
  const {get} = store;
  store.get = async path => {
    if (path === 'prices/chips') throw new Error('for a test');
    return get(path);
  };
}

const aRunThatHasTheOnlyTpu = () =>
  aWorldAfter(aWorkingWorld(), 1, world => void world.drop('other', 0, LINES));

const CASES: Wait[] = [
  {
    name: 'a run whose samples were all rejected',
    given: async () => {
      const world = aWorldWithAStream(2);
      await world.untilAsleep();
      await world.edit('runs/my-run', {status: 'failed', reason: 'all 12 samples were rejected'});
      return world;
    },
    kind: 'failed',
    about: 'each sample of run my-run',
    next_step: /run start RUN --from my-run/,
  },
  {name: 'the same of its TPU', given: () => aWorldWith(soldOut, 12), of: A0, kind: 'zone', about: ZONE},
  {
    name: 'the same of its stream',
    given: () => aWorldWith(soldOut, 12),
    of: 'my-run/000',
    kind: 'zone',
    about: ZONE,
  },
  {
    name: 'a missing permission',
    given: () => aWorldWith(refuse('permission')),
    kind: 'permission',
    about: ZONE,
  },
  {
    name: 'a policy of the organization',
    given: () => aWorldWith(refuse('policy')),
    kind: 'policy',
    about: ZONE,
  },
  {
    name: 'an answer that is not known',
    given: () => aWorldWith(refuse('unknown')),
    kind: 'unknown-answer',
    about: ZONE,
  },
  {
    name: 'a type that the zone lacks',
    given: () => aWorldWith(refuse('bad-request')),
    kind: 'no-such-type',
    about: ZONE,
  },
  {
    name: 'a zone that takes its TPUs back young',
    given: async () => {
      const world = new World(TWO_SLOTS);
      for (let index = 0; index < 4; index++) world.drop('my-run', index, LINES);
      world.settle = () => {
        world.settleTpus();
        for (const node of world.tpus.nodes.values()) if (node.state === 'READY') node.state = 'PREEMPTED';
      };
      await world.minutes(25);
      return world;
    },
    ...{kind: 'zone', about: ZONE, evidence: /preempts TPUs soon .* lived \d+ s/},
  },
  {
    name: 'boots that fail',
    given: () =>
      aWorldAfter(aWorkingWorld(), 6, async world => {
        await stopCreates(world);
        world.tpus.node(A0).state = 'PREEMPTED';
        world.agent(A0).silent = true;
      }),
    ...{kind: 'failed-boots', about: ZONE, evidence: /5 boots in a row.*no disk/},
  },
  {
    name: 'a pool that a person paused',
    given: () => aWorldWith(world => void world.control({action: 'pause', pool: 'tpu'})),
    ...{kind: 'pool-paused', about: 'pool tpu'},
  },
  {
    name: 'a node that is not ours',
    given: () => aWorldWith(world => addForeign(world, A0)),
    ...{kind: 'slot-blocked', about: A0, evidence: /not ours/},
  },
  {
    name: 'a node that is not ours, on a slot that a job asks for',
    given: () =>
      aWorldAfter(aWorkingWorld(), 2, async world => {
        addForeign(world, A1);
        world.drop('my-run', 1, LINES);
        await queueJobs(world, 'tpu', 'my-job');
        world.control({action: 'scale', workers_per_zone: 2});
      }),
    ...{kind: 'slot-blocked', about: A1, evidence: /not ours/},
  },
  {
    name: 'a pool without a slot',
    given: () => aWorldWith(world => void world.control({action: 'scale', workers_per_zone: 0})),
    ...{kind: 'no-slot', about: 'tpu'},
  },
  {
    name: 'a budget of the run',
    given: () => aWorldAfter(aWorldWithAShard(), 2, {action: 'configure', run: 'my-run', budget_usd: 0.0001}),
    ...{kind: 'budget', about: 'run my-run', next_step: /^gleaner run configure my-run/},
  },
  {
    name: 'a budget of the pool',
    given: () => aWorldAfter(aWorldWithAShard(), 2, {action: 'scale', budget_usd: 0.0001}),
    ...{kind: 'budget', about: 'pool tpu', next_step: /^gleaner scale tpu --budget-usd/},
  },
  {
    name: 'a budget that pays for no second TPU',
    given: async () => {
      const world = new World(TWO_SLOTS);
      world.drop('my-run', 0, someLines(400));
      await world.minutes(2, 1);
      await world.order({action: 'configure', run: 'my-run', budget_usd: 0.03});
      world.drop('my-run', 1, someLines(400));
      await world.minutes(1, 1);
      return world;
    },
    ...{kind: 'budget', about: 'run my-run', evidence: /are left, and a TPU needs/},
  },
  {
    name: 'a pause by a person',
    given: () => aWorldAfter(aWorldWithAShard(), 2, {action: 'pause', run: 'my-run'}),
    ...{kind: 'paused', about: 'my-run', evidence: /a person paused it/},
  },
  {
    name: 'a run that goes first',
    given: aRunThatHasTheOnlyTpu,
    of: 'other',
    ...{kind: 'behind', about: 'run my-run', next_step: /run configure other --priority/},
  },
  {
    name: 'a run that goes first and waits for a zone',
    given: () => aWorldAfter(aWorldWith(soldOut), 4, world => void world.drop('other', 0, LINES)),
    of: 'other',
    ...{kind: 'behind', about: 'run my-run'},
  },
  {
    name: 'TPUs that are all at streams, while a job waits',
    given: () =>
      aWorldAfter(aWorkingWorld(), 2, world =>
        world.writeJob('my-job', {code: 'result = 1', status: 'pending'}),
      ),
    of: 'my-job',
    ...{kind: 'pool-full', about: 'tpu'},
    evidence: /1 at work on streams; one gives its stream back .* for 120 s/,
  },
  {
    name: 'a job without capacity for it',
    given: () =>
      aWorldAfter(new World(ONE_SLOT), 8, async world => {
        soldOut(world);
        await world.writeJob('my-job', {code: 'result = 1', status: 'pending'});
      }),
    of: 'my-job',
    ...{kind: 'zone', about: ZONE},
  },
  {
    name: 'jobs that go first',
    given: () =>
      aWorldAfter(new World(ONE_SLOT), 4, async world => {
        soldOut(world);
        await queueJobs(world, 'tpu', 'one', 'two');
        world.drop('my-run', 0, LINES);
      }),
    ...{kind: 'behind', about: 'jobs of pool tpu', next_step: /gleaner scale tpu --zones/},
    behind: /jobs: .* no capacity/,
  },
  {
    name: 'TPUs that are all at work on the run',
    given: () => aWorldAfter(aWorkingWorld(), 2, world => void world.drop('my-run', 1, LINES)),
    ...{kind: 'pool-full', about: 'tpu', evidence: /1 of 1/},
  },
  {
    name: 'a node that is made',
    given: () =>
      aWorldAfter(new World(ONE_SLOT), 0, async world => {
        world.drop('my-run', 0, LINES);
        await world.deliverNext('object');
      }),
    ...{kind: 'coming', about: A0, evidence: /is being created/},
  },
  {
    name: 'the queue of a zone',
    given: () => aWorldWith(soldOut, 4, {GLEANER_PROVISIONING: 'queued-resource'}),
    ...{kind: 'coming', about: A0, evidence: /valid until/},
  },
  {
    name: 'a repair of the host',
    given: () =>
      aWorldAfter(aWorkingWorld(), 2, world => {
        world.tpus.node(A0).state = 'REPAIRING';
        world.agent(A0).silent = true;
      }),
    ...{kind: 'away', about: A0, evidence: /is repairing its host/},
  },
  {
    name: 'a TPU whose lease ended by its silence',
    given: async () => {
      const world = await aWorkingWorld({...ONE_SLOT, GLEANER_LEASE_S: '100', GLEANER_SILENT_S: '600'});
      world.agent(A0).silent = true;
      await world.until('the end of the lease', async () => (await world.worker(A0))?.work === null, 20, 0);
      return world;
    },
    of: A0,
    ...{kind: 'away', about: A0, evidence: /sends nothing/},
  },
  {
    name: 'silent TPUs that a silence guard holds',
    given: () =>
      aWorldAfter(aFleet(3), 6, world => {
        world.isStillborn = () => true;
        silence(world);
      }),
    ...{kind: 'silence-guard', about: ZONE, evidence: /2 TPUs/},
  },
  {
    name: 'a model that does not arrive',
    given: () =>
      aWorldAfter(aWorkingWorld(), 2, world => {
        const {heartbeat} = world.agent(A0);
        const agent = world.agent(A0);
        agent.heartbeat = () => heartbeat.call(agent, {...NO_PROGRESS, waits_for: 'the hub: 503, try 7'});
      }),
    ...{kind: 'model', about: A0, evidence: /the hub: 503/},
  },
  {
    name: 'a stream that failed',
    given: () =>
      aWorldAfter(aWorkingWorld(), 2, world => {
        world.drop('my-run', 1, LINES);
        world.control({action: 'cancel', run: 'my-run', stream: '001'});
      }),
    of: 'my-run/001',
    ...{kind: 'failed', about: 'stream my-run/001', evidence: /cancel/},
  },
  {
    name: 'prices that cannot be read',
    given: async () => {
      const world = new World(ONE_SLOT);
      world.drop('my-run', 0, LINES);
      await world.deliverNext('object');
      hidePrices(world);
      await world.tick().catch(() => {});
      return world;
    },
    ...{kind: 'not-read', about: 'prices/chips'},
  },
  {
    name: 'prices that cannot be read, while a kept TPU comes for the work',
    given: async () => {
      const world = new World(TWO_SLOTS);
      world.control({action: 'keep', pool: 'tpu', workers: 1, minutes: 60});
      await world.deliverNext('control');
      await world.tick();
      world.drop('my-run', 0, LINES);
      await world.deliverNext('object');
      hidePrices(world);
      await world.tick().catch(() => {});
      return world;
    },
    ...{kind: 'coming', about: A0, evidence: /is being created/},
  },
  {
    name: 'a run without a spec',
    given: () =>
      aWorldAfter(new World(ONE_SLOT), 0, async world => {
        world.drop('my-run', 0, LINES);
        await world.deliverNext('object');
        await world.edit('runs/my-run', {spec: null, spec_hash: null});
      }),
    ...{kind: 'no-spec', about: 'my-run'},
  },
  {
    name: 'a run.json that is not valid',
    given: async () => {
      const world = new World(ONE_SLOT);
      world.objects.put('datasets/my-run/run.json', '{"layer": [1]}');
      world.drop('my-run', 0, LINES);
      await wait(world, 1);
      assert.equal((await listRejected(world.deps, () => true)).length, 1);
      return world;
    },
    ...{kind: 'no-spec', about: 'my-run', next_step: /^upload a valid .*run.json/},
  },
  {
    name: 'TPUs of several hosts since a deploy',
    given: async () => {
      const world = new World(ONE_SLOT);
      world.drop('my-run', 0, LINES);
      await world.deliverNext('object');
      Object.assign(world.deps.config.pool, {accelerator: 'v5litepod-16'});
      await wait(world, 2);
      assert.equal(world.tpus.nodes.size, 0, 'no slice waits for a stream that it never gets');
      return world;
    },
    ...{kind: 'several-hosts', about: 'tpu', evidence: /v5litepod-16 has 4 hosts .* use 2 × v5litepod-8/},
  },
  {
    name: 'slices of one zone that a job needs at once',
    given: () =>
      aWorldAfter(new World(TWO_SLOTS), 0, async world => {
        world.isStillborn = name => name.endsWith('-1');
        await world.writeJob('my-job', {code: 'result = 1', status: 'pending', slices: 2});
        await world.until('one slice', async () => (await world.worker(A0))?.phase === 'idle', 20, 2);
      }),
    of: 'my-job',
    ...{kind: 'slices', about: 'job my-job'},
    evidence: new RegExp(
      `^1 of 2 slices of pool tpu are idle in ${ZONE}; tpu-${ZONE}-1 is on its way .*: it boots`,
    ),
  },
  {
    name: 'slices that other jobs have',
    given: () =>
      aWorldAfter(aWorldAtWork(undefined, TWO_SLOTS), 3, world =>
        world.writeJob('job-of-two', {code: 'result = 1', status: 'pending', slices: 2}),
      ),
    of: 'job-of-two',
    ...{kind: 'slices', about: 'job job-of-two', evidence: /^0 of 2 slices of pool tpu are idle in [^;]*$/},
  },
  {
    name: 'nodes without documents',
    given: () =>
      aWorldWith(
        async world => {
          for (const slot of [1, 2, 3]) world.tpus.add(anOrphan(world, slot));
          await world.tick();
        },
        3,
        {GLEANER_WORKERS_PER_ZONE: '4'},
      ),
    ...{kind: 'orphans', about: ZONE},
  },
  {
    name: 'a document of its zone that is left alone',
    given: () => aWorldAfter(aWorldWith(soldOut), 2, world => world.edit(`zones/${ZONE}`, {losses: 'many'})),
    ...{kind: 'unreadable', about: `the document of zone ${ZONE}`},
  },
  {
    name: 'a document of its pool that is left alone',
    given: () =>
      aWorldAfter(aWorldWith(soldOut), 2, world => world.edit('pools/tpu', {pool: 'tpu', zones: 7})),
    ...{kind: 'unreadable', about: 'the document of pool tpu'},
  },
];

const NO_PROGRESS = {
  ...{samples_done: 0, samples_total: null, tokens_done: 0, shards_done: 0, tokens_per_s: null},
};

const WAITS: readonly (readonly [state: string | undefined, wait: Wait])[] = [
  ...Object.entries(STATE_WAITS),
  ...[...Object.values(FAULT_WAITS), ...Object.values(CEILING_WAITS), ...CASES].map(
    wait => [undefined, wait] as const,
  ),
];

/** As a person says it: a run, a stream, a job or a TPU by its name. */
function kindOfName(name: string): string {
  if (name.includes('/')) return 'stream';
  return name.startsWith('tpu-') ? 'tpu' : name === 'my-job' ? 'job' : 'run';
}

/** Values for the words that a step leaves to the person. */
const FILLED: Record<string, string> = {N: '9', ZONES: ZONE, TPU: A0, RUN: 'my-run-2', POOL: 'tpu'};

/** The commands of a step: in backticks, or up to the next comma. */
function commandsIn(step: string): string[][] {
  const found = step.match(/(?<=`)gleaner [^`]+(?=`)|(?<!`)gleaner [^,`]+/g) ?? [];
  return found.map(text =>
    text
      .split(' ')
      .slice(1)
      .map(word => FILLED[word] ?? word),
  );
}

function leafOf(words: readonly string[]): Command {
  return words.reduce<Command>(
    (command, word) => command.commands.find(each => each.name() === word) ?? command,
    gleanerProgram(),
  );
}

/** Publishes the message of a command. Of a command that only reads or uploads, its words alone are checked. */
async function follow(world: World, cloud: LocalCloud, words: string[]): Promise<void> {
  const {options} = leafOf(words);
  const isMessage =
    words[1] !== 'start' && options.some(({description}) => description.includes('print the gcloud'));
  const more = isMessage ? ['--dry-run', '--port', new URL(cloud.url).port] : ['--help'];
  const ownZones = world.deps.config.ceilings.allowed_zones?.join();
  const given = words.map(word => (word === ZONE && ownZones ? ownZones : word));
  const {code, stdout, stderr} = await gleaner([...given, ...more]);
  assert.equal(code, 0, `gleaner ${words.join(' ')}: ${stderr}`);
  for (const [, message = ''] of stdout.matchAll(/topics publish control --message='(.*?)' /g)) {
    const {outcome, reason} = await send(world, JSON.parse(message));
    assert.equal(outcome, 'applied', `gleaner ${words.join(' ')}: ${reason}`);
  }
}

/** Replaces an object that is not valid. */
async function upload(world: World, object: string): Promise<void> {
  await wait(world, 1);
  world.objects.put(object, JSON.stringify({model: 'gs://models/tiny'}));
  await wait(world, 1);
  assert.equal((await world.run('my-run'))?.status, 'active');
  assert.deepEqual(await listRejected(world.deps, () => true), [], 'a rejection ends with its object');
}

describe('work that waits has the reason', () => {
  const scratch = new Scratch(after);
  let cloud: LocalCloud;
  before(async () => {
    cloud = await scratch.cloud();
  });

  it('has a case for each kind of constraint, fault of the local cloud, ceiling and state', () => {
    const states = {
      run: runDocument.shape.status.options,
      stream: streamDocument.shape.status.options,
      job: jobDocument.shape.status.options,
      tpu: TPU_STATUSES,
    };
    const allStates = Object.entries(states).flatMap(([of, all]) => all.map(state => `${of} ${state}`));
    const kinds = new Set(WAITS.flatMap(([, {kind}]) => kind ?? []));
    assert.deepEqual(
      [kinds, Object.keys(FAULT_WAITS), Object.keys(CEILING_WAITS), Object.keys(STATE_WAITS)].map(had =>
        [...had].sort(),
      ),
      [CONSTRAINT_KINDS, FAULT_KINDS, Object.keys(aConfig().ceilings), allStates].map(all => [...all].sort()),
    );
    const helped = faultHelp.split('\n').map(line => line.trim().split(' ')[0]);
    assert.deepEqual(
      helped.slice(0, FAULT_KINDS.length),
      FAULT_KINDS,
      '`local fault help` has a line for each',
    );
  });

  for (const [status, {name, given, of = 'my-run', kind, about, ...texts}] of WAITS)
    it(status === undefined ? name : `${name}: ${status}`, async () => {
      const world = await given();
      const found = await explain(
        {store: world.store, jobs: 'jobs', connection: {stopped: async () => undefined}} as Cloud,
        of,
      );
      assert.deepEqual([found.kind, found.about], [kind, about], found.reason ?? (await world.describe()));
      if (status !== undefined) assert.equal(`${kindOfName(of)} ${found.state}`, status);
      for (const [key, text] of Object.entries(texts))
        assert.match(found[key as keyof typeof texts] ?? '', text);
      const [, object] = /^upload a valid (\S+):/.exec(found.next_step ?? '') ?? [];
      if (object !== undefined) await upload(world, object);
      const commands = commandsIn(found.next_step ?? '');
      if (commands.length === 0) return;
      const stored = (await wholeStore(world)).map(({path, data}) => [path, data]);
      await putInCloud(cloud, Object.fromEntries(stored));
      for (const words of commands) await follow(world, cloud, words);
    });

  it('and the time of the next try and the count of refusals are those of the zone', async () => {
    const world = await FAULT_WAITS.quota.given();
    for (let minute = 0; minute < 10; minute++) {
      await wait(world, 1);
      const run = await world.run('my-run');
      const {limiter} = (await world.store.get(`zones/${ZONE}`)) ?? assert.fail('no zone');
      const {refusals, next_at} = limiter as Limiter;
      // A canary that is refused after the tick is in the document of the run from the next tick on.
      assert.ok(refusals - Number(run?.waits?.refusals) <= 1, `${refusals} refusals, ${run?.reason}`);
      assert.ok(Date.parse(String(run?.waits?.next_try_at)) >= Date.parse(String(next_at)) - 120_000);
    }
  });
});
