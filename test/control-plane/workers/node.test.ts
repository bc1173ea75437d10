import assert from 'node:assert/strict';
import {findMissing} from '../../../shared/control-plane/tick/list-nodes.ts';
import {iso} from '../../../shared/domain/time.ts';
import {missingIn, NOT_LISTED, type Nodes, observe} from '../../../shared/domain/worker/nodes.ts';
import {aTpu, at, aWorker, moment, T0} from '../../world/builders.ts';
import {someLines} from '../../world/shard-plan.ts';
import {World} from '../../world/world.ts';

const HUB = {
  GLEANER_HF_ENDPOINT: 'https://mirror.example',
  GLEANER_HF_TOKEN_SECRET: 'projects/p/secrets/hub-token',
};

describe('a node', () => {
  for (const [name, set, expected] of [
    ['the hub, and never the name of its secret', HUB, 'https://mirror.example'],
    ['no hub where none is set', {}, undefined],
  ] as const)
    it(`has in its metadata, beside its own name, ${name}`, async () => {
      const world = new World({...set, GLEANER_ZONES: 'us-central1-a', GLEANER_WORKERS_PER_ZONE: '1'});
      world.drop('my-run', 0, someLines(5, 's0'));
      await world.until('make a node', () => world.tpus.made.length > 0, 9, 1);
      const {metadata} = world.tpus.node('tpu-us-central1-a-0');
      assert.equal(metadata['gleaner-hf-endpoint'], expected);
      assert.doesNotMatch(JSON.stringify(metadata), /hub-token/);
      assert.equal(metadata['gleaner-worker'], 'tpu-us-central1-a-0');
      assert.equal(metadata['gleaner-bucket'], 'bucket');
    });

  for (const [what, set, bucket] of [
    ['the bucket of logs', {GLEANER_LOGS_BUCKET: 'the-logs'}, 'the-logs'],
    ['the bucket of data for its log, where no other is set', {}, 'bucket'],
  ] as const)
    it(`has in its metadata ${what}, and its attempt names the log there`, async () => {
      const world = new World({...set, GLEANER_ZONES: 'us-central1-a', GLEANER_WORKERS_PER_ZONE: '1'});
      world.drop('my-run', 0, someLines(5, 's0'));
      await world.until('make a node', () => world.tpus.made.length > 0, 9, 1);
      assert.equal(world.tpus.node('tpu-us-central1-a-0').metadata['gleaner-logs-bucket'], bucket);
      await world.untilAsleep();
      const [attempt] = await world.store.query('workers/tpu-us-central1-a-0/attempts');
      assert.equal(attempt?.data.log, `gs://${bucket}/logs/tpu-us-central1-a-0/1.log`);
    });

  it('lets people in by IAM alone', async () => {
    const world = new World({GLEANER_ZONES: 'us-central1-a', GLEANER_WORKERS_PER_ZONE: '1'});
    world.drop('my-run', 0, someLines(5, 's0'));
    await world.until('make a node', () => world.tpus.made.length > 0, 9, 1);
    const {metadata} = world.tpus.node('tpu-us-central1-a-0');
    assert.deepEqual([metadata['enable-oslogin'], metadata['block-project-ssh-keys']], ['TRUE', 'TRUE']);
  });

  it('is not created without the address of worker-api, and the error names the variable', async () => {
    const world = new World({GLEANER_ZONES: 'us-central1-a', GLEANER_WORKERS_PER_ZONE: '1'});
    world.deps.config = {...world.deps.config, worker_api: undefined};
    world.drop('my-run', 0, someLines(5, 's0'));
    await world.minutes(2, 0);
    assert.deepEqual(world.tpus.made, []);
    assert.ok(
      world.logs.some(({message}) => /GLEANER_WORKER_API is not set, and on-tpu needs it/.test(message)),
      JSON.stringify(world.logs),
    );
  });
});

describe('a read of a node that the list leaves out', () => {
  it('proves that the node is gone where it finds only the queued resource', async () => {
    const worker = aWorker({phase: 'working', provider_state: 'READY', queue_state: 'ACTIVE'});
    const {labels, ...node} = aTpu({state: null});
    const queued = {state: 'ACTIVE', initiator: '', error: null, valid_until_at: null, labels};
    const {tpus, log} = new World().deps;
    tpus.get = async () => ({...node, labels, queued});
    const nodes = await findMissing({tpus, log}, {...NOT_LISTED, at_ms: T0}, [worker]);
    assert.equal(observe(nodes, worker).kind, 'absent');
  });
});

describe('a list of nodes that leaves the worker out', () => {
  const LISTED_MS = 1_000_000;
  const nodes: Nodes = {...NOT_LISTED, at_ms: LISTED_MS};
  const rows = [
    {
      later: 'the worker was asked for later',
      phase: 'creating',
      phase_ms: LISTED_MS + 1,
      provider_ms: null,
      shows: 'unknown',
    },
    {
      later: 'its deletion began later',
      phase: 'deleting',
      phase_ms: LISTED_MS + 1,
      provider_ms: null,
      shows: 'unknown',
    },
    {
      later: 'another list showed it later',
      phase: 'booting',
      phase_ms: 0,
      provider_ms: LISTED_MS + 1,
      shows: 'unknown',
    },
    {
      later: 'nothing has changed since',
      phase: 'booting',
      phase_ms: 0,
      provider_ms: LISTED_MS,
      shows: 'missing',
    },
  ] as const;
  for (const {later, phase, phase_ms, provider_ms, shows} of rows)
    it(`shows a ${phase} worker as ${shows}: ${later}`, () => {
      const provider_since_at = provider_ms === null ? null : iso(provider_ms);
      const worker = aWorker({phase, phase_since_at: iso(phase_ms), provider_since_at});
      assert.equal(observe(nodes, worker).kind, shows);
    });

  for (const {seconds, effect, asked} of [
    {seconds: 59, effect: 'asks Cloud TPU nothing', asked: []},
    {seconds: 60, effect: 'asks Cloud TPU for the node', asked: ['tpu-us-central1-a-0']},
  ])
    it(`${effect} ${seconds} s after the first such list`, () => {
      const known = {phase: 'idle', provider_state: 'READY', heartbeat_at: at(0)} as const;
      const worker = aWorker({...known, missing_since_at: at(1000)});
      const later: Nodes = {...NOT_LISTED, at_ms: T0 + (1000 + seconds) * 1000};
      const {servedTime} = moment(later.at_ms);
      const missing = missingIn(later, new Map([[worker.name, worker]]), servedTime, 90);
      assert.deepEqual(
        missing.map(({name}) => name),
        asked,
      );
    });
});
