/** Secrets of jobs and tokens of the deployment: who gets which from worker-api. */
import assert from 'node:assert/strict';
import {streamRecords, workerRecords} from '../../../shared/control-plane/documents/documents.ts';
import {jobRecords} from '../../../shared/control-plane/documents/job-documents.ts';
import {aLeasedStream, at, aWorker} from '../../world/builders.ts';
import {asHost, secretOf} from '../../world/bus.ts';
import {sendAlone} from '../../world/people.ts';
import {aRunningJob, jobIn} from '../../world/scenes/jobs.ts';
import {A0, A1, TWO_SLOTS} from '../../world/scenes/places.ts';
import {wholeStore} from '../../world/scenes/whole-store.ts';
import {World} from '../../world/world.ts';

const SETTINGS = {
  ...TWO_SLOTS,
  GLEANER_HF_TOKEN_SECRET: 'projects/p/secrets/hub',
  GLEANER_GIT_TOKEN_SECRET: 'github.com=projects/p/secrets/git',
  GLEANER_JOB_SECRETS: 'wandb=projects/p/secrets/wandb,mail=projects/p/secrets/mail/versions/3',
};
const sender = {worker: A0, incarnation: 2, host: 0};
const MY_JOB = {job: 'my-job', epoch: 3};
const MY_STREAM = {run: 'my-run', stream: '007', epoch: 3};

/** A0 runs my-job and A1 runs other-job. A secret `projects/p/secrets/X` has the text `value of X`. */
async function aWorld(settings: Record<string, string> = SETTINGS): Promise<World> {
  const world = new World(settings);
  world.deps.secrets = {read: async name => ({text: name.replace(/.*\/secrets\//, 'value-of-')})};
  const working = {phase: 'working', epoch: 3, heartbeat_at: at(0), ready_at: at(0)} as const;
  await world.store.transaction(async tx => {
    workerRecords.set(tx, aWorker({...working, name: A0, work: 'job:my-job'}));
    workerRecords.set(tx, aWorker({...working, name: A1, work: 'job:other-job'}));
    streamRecords.set(tx, aLeasedStream());
    jobRecords.set(world.deps, tx, aRunningJob({secrets: {WANDB_API_KEY: 'wandb', MAIL: 'mail'}}));
    const lease = {worker: A1, incarnation: 2, epoch: 3, host_count: 1, members: []};
    jobRecords.set(world.deps, tx, aRunningJob({job: 'other-job', secrets: {KEY: 'mail'}, lease}));
  });
  return world;
}

const ask = (world: World, lease: object | null, more: object = {}, secret = secretOf(A0, 2)) =>
  world.api({action: 'secrets', ...sender, ...more, lease}, asHost(secret));

describe('a request for secrets', () => {
  for (const [name, lease, secrets] of [
    ['of its job', MY_JOB, {WANDB_API_KEY: 'value-of-wandb', MAIL: 'value-of-mail/versions/3'}],
    ['of its stream, the token of the hub', MY_STREAM, {hub: 'value-of-hub'}],
    ['without a lease, the token of git', null, {git: 'value-of-git'}],
  ] as const)
    it(`gives a host those ${name}, and no document has them`, async () => {
      const world = await aWorld();
      const before = await wholeStore(world);
      const {status, body} = await ask(world, lease);
      assert.deepEqual([status, body.action, body.secrets], [200, 'secrets', secrets]);
      assert.deepEqual(await wholeStore(world), before);
      assert.doesNotMatch(JSON.stringify([before, world.logs]), /value-of/);
    });

  for (const [name, status, lease, more, secret] of [
    ['the lease of another worker', 409, {job: 'other-job', epoch: 3}],
    ['an earlier attempt', 409, {...MY_JOB, epoch: 2}],
    ['an earlier lease of a stream', 409, {...MY_STREAM, epoch: 2}],
    ['the secret of another worker', 403, MY_JOB, {}, secretOf(A1, 2)],
    ['an earlier incarnation', 403, null, {incarnation: 1}],
    ['another host', 403, MY_JOB, {host: 1}],
  ] as [string, number, object | null, object?, string?][])
    it(`with ${name} is refused`, async () => {
      const answer = await ask(await aWorld(), lease, more, secret);
      assert.deepEqual([answer.status, answer.body.secrets], [status, undefined]);
    });

  it('of a worker whose node is being deleted is refused', async () => {
    const world = await aWorld();
    const deleting = aWorker({name: A0, phase: 'deleting', work: 'job:my-job', epoch: 3});
    await world.store.transaction(async tx => workerRecords.set(tx, deleting));
    for (const lease of [MY_JOB, null]) assert.equal((await ask(world, lease)).status, 409);
  });

  it('that worker-api may not answer says why, and one that nothing names has no secret', async () => {
    const world = await aWorld();
    world.deps.secrets = {read: async () => ({problem: 'worker-api may not read it'})};
    const {body} = await ask(world, MY_JOB);
    assert.deepEqual([body.action, body.reason], ['none', 'worker-api may not read it']);
    world.deps.secrets = {read: async () => ({text: 'two words'})};
    assert.match(String((await ask(world, null)).body.reason), /projects\/p\/secrets\/git is not one word/);
    assert.deepEqual((await ask(await aWorld(TWO_SLOTS), null)).body.secrets, {});
    const removed = await ask(await aWorld(TWO_SLOTS), MY_JOB);
    assert.equal(removed.body.reason, 'the secret of WANDB_API_KEY is not in job_secrets: add it there');
  });
});

describe('a job with variables and secrets', () => {
  const submit = (world: World, fields: object) =>
    sendAlone(world, {action: 'submit', job: 'new-job', code: 'result = 1', ...fields});
  for (const [name, fields, reason] of [
    [
      'a secret that the deployment does not list',
      {secrets: {KEY: 'wandv'}},
      /^secret wandv is not in job_secrets: use wandb, mail,/,
    ],
    ['a variable twice', {env: {KEY: '1'}, secrets: {KEY: 'mail'}}, /^KEY is in env and in secrets/],
  ] as const)
    it(`is refused with ${name}, as a message and as a document`, async () => {
      const world = await aWorld();
      assert.match((await submit(world, fields)).reason, reason);
      const document = {code: '1', status: 'pending', ...fields};
      await world.store.transaction(async tx => tx.create('jobs/new-job', document));
      await world.tick();
      const {cause, error} = await jobIn(world, 'new-job');
      assert.equal(cause, 'invalid');
      assert.match(String(error), reason);
    });
});
