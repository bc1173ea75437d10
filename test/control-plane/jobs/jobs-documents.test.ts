/** Documents of jobs as people write them: valid ones run, and all others fail with a reason. */
import assert from 'node:assert/strict';
import {poolRecords} from '../../../shared/control-plane/documents/documents.ts';
import {jobRecords} from '../../../shared/control-plane/documents/job-documents.ts';
import {firstWaiting} from '../../../shared/control-plane/jobs/waiting-jobs.ts';
import type {Document, Store} from '../../../shared/ports/ports.ts';
import {at} from '../../world/builders.ts';
import {sendAlone} from '../../world/people.ts';
import {aJob, aWorldAtWork, aWorldOfJobs, jobIn, storedJob} from '../../world/scenes/jobs.ts';
import {A0, ONE_SLOT} from '../../world/scenes/places.ts';
import {putDocuments} from '../../world/scenes/put-documents.ts';
import {World} from '../../world/world.ts';

const CODE = 'result = 1';

/** Every way in which a document is taken up. */
const WAYS: {name: string; take: (world: World) => Promise<unknown>}[] = [
  {name: 'its event', take: world => world.deliverNext('job')},
  {name: 'a tick', take: world => world.tick()},
];

describe('the document of a running job that is left alone', () => {
  it('keeps its TPU and its lease, and the job ends when the document is understood again', async () => {
    const world = await aWorldAtWork();
    const before = await storedJob(world);
    const change = (changes: Document) =>
      world.store.transaction(async tx => tx.set('jobs/my-job', {...before, ...changes}));
    await change({timeout: 'long'});
    await world.minutes(15, 1);
    const worker = await world.worker(A0);
    assert.deepEqual([worker?.work, worker?.phase, world.tpus.made], ['job:my-job', 'working', [`${A0}#1`]]);
    await change({});
    assert.equal((await jobIn(world)).status, 'running');
    world.agent(A0).jobEnd = {outcome: 'completed'};
    await world.until('the end', async () => (await jobIn(world)).status === 'completed', 9, 1);
    assert.deepEqual((await jobIn(world)).epoch, 1);
  });
});

describe('the document of a running job whose worker ended while it was left alone', () => {
  it('is given to another worker soon, long before its timeout', async () => {
    const world = await aWorldAtWork({code: CODE, status: 'pending', timeout: 86_400});
    const before = await storedJob(world);
    const write = (changes: Document) =>
      world.store.transaction(async tx => tx.set('jobs/my-job', {...before, ...changes}));
    await write({timeout: 'long'});
    world.preempt(A0);
    await world.until('the end', async () => (await world.worker(A0))?.phase === 'gone', 9, 1);
    await write({});
    await world.until('another attempt', async () => (await jobIn(world)).epoch === 2, 30, 1);
    assert.deepEqual((await jobIn(world)).failures, 0);
  });
});

describe('the message clear', () => {
  it('with before_at reads the jobs that it deletes, and no younger one', async () => {
    const world = new World(ONE_SLOT);
    await world.store.transaction(async tx => {
      for (let index = 0; index < 60; index++)
        jobRecords.set(
          world.deps,
          tx,
          aJob({job: `job-${index}`, status: 'completed', queue: null, completed_at: at(index)}),
        );
    });
    const {store} = world.deps;
    const read: string[] = [];
    const query: Store['query'] = async (collection, of) => {
      const found = await store.query(collection, of);
      if (collection === 'jobs') read.push(...found.map(({id}) => id));
      return found;
    };
    world.deps.store = {...store, query};
    assert.equal((await sendAlone(world, {action: 'clear', before_at: at(5)})).outcome, 'applied');
    assert.deepEqual(read, ['job-0', 'job-1', 'job-2', 'job-3', 'job-4']);
    assert.equal(await world.store.count('jobs'), 55);
  });
});

describe('a document of a job', () => {
  const OFFLINE = {GLEANER_INTERNET: 'false'};
  const invalid: {name: string; given: Document; says: RegExp; id?: string; set?: Record<string, string>}[] =
    [
      {name: 'a timeout in words', given: {timeout: '5m'}, says: /timeout: expected a number/},
      {name: 'a timeout of 0', given: {timeout: 0}, says: /timeout: expected more than 0/},
      {name: 'a negative timeout', given: {timeout: -1}, says: /timeout: expected more than 0/},
      {name: 'an endless timeout', given: {timeout: 1e9}, says: /timeout: expected at most 604800/},
      {name: 'neither code nor command', given: {code: null}, says: /neither code nor command/},
      {name: 'code and command', given: {command: ['ls']}, says: /code and command/},
      {
        name: 'arguments beside a command',
        given: {code: null, command: ['ls'], args: ['-l']},
        says: /append them to the command/,
      },
      {name: 'empty code', given: {code: ''}, says: /code: expected at least 1 character/},
      {name: 'code as a list', given: {code: [CODE]}, says: /code: expected a string/},
      {name: 'an empty command', given: {code: null, command: []}, says: /command: /},
      {name: 'an unknown pool', given: {pool: 'big'}, says: /there is no pool "big"/},
      {name: 'a pool with a slash', given: {pool: 'a/b'}, says: /pool: a pool name/},
      {name: 'a priority in words', given: {priority: 'high'}, says: /priority: expected a number/},
      {name: 'endless retries', given: {max_retries: 1e6}, says: /max_retries: expected at most 100/},
      {name: 'metadata as text', given: {metadata: 'me'}, says: /metadata: expected an object/},
      {
        name: 'a branch as an option',
        given: {source: {repo: 'https://x.org/a', branch: '--x'}},
        says: /source/,
      },
      {name: 'a repo with a password', given: {source: {repo: 'https://u:p@x.org/a', pr: 1}}, says: /source/},
      {
        name: 'a repository without the internet',
        given: {source: {repo: 'https://x.org/a', pr: 1}},
        set: OFFLINE,
        says: /the repository https:\/\/x.org\/a needs the internet/,
      },
      {
        name: 'another JAX without the internet',
        given: {environment: {jax_version: 'nightly'}},
        set: OFFLINE,
        says: /jax_version nightly needs the internet/,
      },
      {
        name: 'an unknown key of the environment',
        given: {environment: {gpu: 1}},
        says: /environment: there is no "gpu"/,
      },
      {name: 'a sixth input', given: {inputs: Array(6).fill('run:a')}, says: /inputs: expected at most 4/},
      {
        name: 'inputs without a network',
        given: {inputs: ['run:a']},
        set: {GLEANER_JOB_EGRESS: 'none'},
        says: /^inputs need job_egress nat: this deployment gives jobs no network$/,
      },
      ...['run:a', 'run:../b', 'gs://bucket/models/m'].map(input => ({
        name: `the input ${input}`,
        given: {inputs: [input]},
        says: new RegExp(`^input ${input} does not exist$`),
      })),
      ...['gs://other/models/m', 'gs://bucket/models', 'gs://bucket/jobs/a'].map(input => ({
        name: `the input ${input}`,
        given: {inputs: [input]},
        says: new RegExp(`^${input} is not of this deployment: name run:NAME, or a folder`),
      })),
      {name: 'negative limits', given: {limits: {memory_gb: -1}}, says: /limits.memory_gb/},
      {name: 'a budget of nothing', given: {budget_usd: 0}, says: /budget_usd: expected more than 0/},
      {name: 'an id with spaces', given: {}, id: 'my job!', says: /is not a job id/},
      {
        name: 'a text that leaves no room',
        given: {notes: 'x'.repeat(700_000)},
        says: /leaves no room for a result/,
      },
      {name: 'too much code', given: {code: 'x'.repeat(180_001)}, says: /code: /},
      {
        name: 'almost all of a megabyte',
        given: {metadata: {text: 'x'.repeat(1_048_000)}},
        says: /leaves no room|cannot be stored/,
      },
    ];
  for (const {name, given, says, id = 'my-job', set = {}} of invalid)
    for (const way of WAYS)
      it(`with ${name} fails by ${way.name}, and the next document runs`, async () => {
        const world = new World({...ONE_SLOT, ...set});
        await world.writeJob(id, {code: CODE, ...given, status: 'pending'});
        await way.take(world);
        const {status, cause, error, queue, completed_at} = await storedJob(world, id);
        assert.deepEqual([status, cause, queue], ['failed', 'invalid', null]);
        assert.match(String(error), says);
        assert.ok(completed_at);
        await world.writeJob('next', {code: CODE, status: 'pending'});
        await world.until(
          'the next job',
          async () => (await jobIn(world, 'next').catch(() => null))?.status === 'completed',
        );
        assert.deepEqual(
          world.logs.filter(({severity}) => severity === 'ERROR'),
          [],
        );
      });

  it('without a status is taken up by its event', async () => {
    const world = new World(ONE_SLOT);
    await world.writeJob('my-job', {code: CODE});
    await world.untilAsleep();
    assert.equal((await jobIn(world)).status, 'completed');
  });

  it('with only its code has the defaults, and nulls are no values', async () => {
    const world = new World(ONE_SLOT);
    const nulls = {timeout: null, priority: null, metadata: null, pool: null, command: null};
    await world.writeJob('my-job', {code: CODE, status: 'pending', ...nulls});
    await world.deliverNext('job');
    const {timeout, priority, max_retries, pool, metadata, status} = await jobIn(world);
    assert.deepEqual(
      [timeout, priority, max_retries, pool, metadata, status],
      [300, 0, 0, 'tpu', {}, 'scheduled'],
    );
  });

  it('keeps its unknown fields to its end', async () => {
    const world = new World(ONE_SLOT);
    await world.writeJob('my-job', {code: CODE, status: 'pending', team: {name: 'x', tags: ['a']}});
    await world.untilAsleep();
    const {team, status} = await storedJob(world);
    assert.deepEqual([team, status], [{name: 'x', tags: ['a']}, 'completed']);
  });

  it('with fields of ours as nonsense runs with ours', async () => {
    const world = new World(ONE_SLOT);
    const nonsense = {lease: 'mine', epoch: 'x', attempts: 7, queue: 'tpu/0000', failures: -1, due_at: null};
    await world.writeJob('my-job', {code: CODE, status: 'pending', ...nonsense});
    await world.untilAsleep();
    const {status, epoch, attempts, failures} = await jobIn(world);
    assert.deepEqual([status, epoch, attempts.length, failures], ['completed', 1, 1, 0]);
  });

  for (const status of ['running', 'scheduled', 'queued', 7])
    it(`with the status ${status} of a person fails with the reason, and holds up no other`, async () => {
      const world = new World(ONE_SLOT);
      await world.writeJob('my-job', {
        code: CODE,
        status,
        queue: 'tpu/0000/a',
        due_at: '2025-01-01T00:00:00.000Z',
      });
      await world.deliverNext('job');
      const {cause, error} = await storedJob(world);
      assert.equal(cause, 'invalid');
      assert.match(String(error), /is not a status of a new job: leave it out/);
    });

  it('that is left alone in the queue hides no job behind it, and gets no TPU', async () => {
    const world = new World(ONE_SLOT);
    const path = (index: number) => `jobs/job-${index}`;
    for (let index = 0; index < 12; index++)
      await world.writeJob(`job-${index}`, {code: CODE, status: 'pending'});
    while (await world.deliverNext('job')) {}
    for (let index = 0; index < 11; index++) await world.edit(path(index), {status: 'archived'});
    const before = await world.store.get(path(0));
    await world.untilAsleep();
    assert.deepEqual([(await jobIn(world, 'job-11')).status, world.tpus.made.length], ['completed', 1]);
    assert.deepEqual(await world.store.get(path(0)), before);
  });

  it('of another program that has ended stays as it is', async () => {
    const world = new World(ONE_SLOT);
    const given = {status: 'completed', code: 7, result: ['old']};
    await world.writeJob('my-job', given);
    await world.deliverNext('job');
    await world.tick();
    assert.deepEqual(await storedJob(world), given);
  });

  it('in another collection is no job of the deployment', async () => {
    const world = new World({...ONE_SLOT, GLEANER_JOBS_COLLECTION: 'tpu_jobs'});
    await world.writeJob('my-job', {code: CODE, status: 'pending'});
    await world.untilAsleep();
    assert.equal((await world.store.get('tpu_jobs/my-job'))?.status, 'completed');
  });

  it('whose pool has an invalid document fails, and the tick goes on', async () => {
    const world = new World(ONE_SLOT);
    await world.store.transaction(async tx => tx.set('pools/fast', {pool: 'fast', zones: 7}));
    await world.writeJob('my-job', {code: CODE, status: 'pending', pool: 'fast'});
    await world.deliverNext('job');
    assert.match(String((await storedJob(world)).error), /there is no pool "fast"/);
    assert.equal(
      await poolRecords.find(world.store, 'tpu', world.deps.config.pool).then(pool => pool?.pool),
      'tpu',
    );
  });

  it('is taken up once, by its event and a tick at once', async () => {
    const world = new World(ONE_SLOT);
    await world.writeJob('my-job', {code: CODE, status: 'pending'});
    await Promise.all([world.deliverNext('job'), world.tick(), world.tick()]);
    await world.untilAsleep();
    assert.deepEqual(
      (await jobIn(world)).attempts.map(({epoch}) => epoch),
      [1],
    );
  });

  it('of a deleted job is written again with epochs above the output of the first', async () => {
    const world = new World(ONE_SLOT);
    for (const epoch of [1, 2, 10]) world.objects.put(`jobs/my-job/epoch_${epoch}/output/000001.txt`, 'x');
    world.objects.put('jobs/my-job-2/epoch_99/output/000001.txt', 'x');
    await world.writeJob('my-job', {code: CODE, status: 'pending'});
    await world.untilAsleep();
    assert.deepEqual(
      (await jobIn(world)).attempts.map(({epoch}) => epoch),
      [11],
    );
  });
});

/** A store whose database has this document, as Firestore has it and our adapters do not write it. */
function withForeign(world: World, id: string, data: Document): void {
  const {store} = world.deps;
  const path = `jobs/${id}`;
  let isForeign = true;
  const seen = (found: Document | undefined) => (isForeign && found ? {...data, status: 'pending'} : found);
  world.deps.store = {
    ...store,
    get: async given => (given === path ? seen(await store.get(path)) : store.get(given)),
    transaction: work =>
      store.transaction(tx =>
        work({
          create: tx.create.bind(tx),
          delete: tx.delete.bind(tx),
          get: async given => (given === path ? seen(await tx.get(path)) : tx.get(given)),
          set: (given, value) => {
            tx.set(given, value);
            if (given === path) isForeign = false;
          },
        }),
      ),
  } satisfies Store;
}

describe('a document of a client of Firestore', () => {
  const foreign: {name: string; given: Document; says: RegExp; keeps: Document}[] = [
    {
      name: 'a time in words',
      given: {code: CODE, metadata: {asked_at: 'yesterday'}},
      says: /metadata.asked_at.*a field …_at holds an instant/,
      keeps: {metadata: {asked_at_: 'yesterday'}},
    },
    {
      name: 'a quote in a name',
      given: {code: CODE, 'my "field"': 1},
      says: /holds a quote/,
      keeps: {'my _field_': 1},
    },
    {
      name: 'a number for a time',
      given: {code: CODE, metadata: {nested: [{sent_at: 1_700_000_000}]}},
      says: /sent_at/,
      keeps: {metadata: {nested: [{sent_at_: 1_700_000_000}]}},
    },
  ];
  for (const {name, given, says, keeps} of foreign)
    it(`with ${name} fails with the field in the reason, and keeps it under another name`, async () => {
      const world = new World(ONE_SLOT);
      await world.writeJob('my-job', {status: 'pending'});
      withForeign(world, 'my-job', given);
      await world.deliverNext('job');
      const found = await storedJob(world);
      assert.deepEqual([found.status, found.cause, found.code], ['failed', 'invalid', CODE]);
      assert.match(String(found.error), says);
      for (const [field, value] of Object.entries(keeps)) assert.deepEqual(found[field], value);
    });

  it('with created_at in words runs, as created when it was taken up', async () => {
    const world = new World(ONE_SLOT);
    await world.writeJob('my-job', {status: 'pending'});
    withForeign(world, 'my-job', {code: CODE, created_at: 'last week'});
    await world.deliverNext('job');
    const {status, created_at} = await jobIn(world);
    assert.deepEqual([status, Date.parse(created_at) <= world.now], ['scheduled', true]);
  });
});

describe('a copy of the document of a job', () => {
  it('is a job of its own, whatever its field says', async () => {
    const world = aWorldOfJobs();
    const copy = aJob({queue: `tpu/1000/${at(0)}/copy`});
    await putDocuments(world.store, {'jobs/copy': copy});
    const [first] = await firstWaiting(world.deps, 'tpu', 10);
    assert.deepEqual([copy.job, first?.job, (await jobIn(world, 'copy')).job], ['my-job', 'copy', 'copy']);
  });
});
