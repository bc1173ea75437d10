/** Jobs of several slices, over the real functions. */
import assert from 'node:assert/strict';
import {isDeepStrictEqual} from 'node:util';
import {workerRecords} from '../../../shared/control-plane/documents/documents.ts';
import {membersOf} from '../../../shared/control-plane/documents/job-documents.ts';
import {aWorker} from '../../world/builders.ts';
import {send} from '../../world/people.ts';
import {aRunningJob, aWorldOfJobs, HOLDER, jobIn} from '../../world/scenes/jobs.ts';
import {A0, ZONE} from '../../world/scenes/places.ts';
import {someLines} from '../../world/shard-plan.ts';
import type {World} from '../../world/world.ts';

const FOUR_SLOTS = {GLEANER_ZONES: ZONE, GLEANER_WORKERS_PER_ZONE: '4'};
const CODE = {code: 'result = 1', status: 'pending', timeout: 3600};

const atWork = (world: World, id: string) =>
  [...world.agents.values()].filter(({job}) => job?.lease.job === id);

function untilAtWork(world: World, id: string, epoch: number): Promise<void> {
  const has = () => atWork(world, id).filter(({job}) => job?.lease.epoch === epoch).length === 3;
  return world.until(`${id} on three slices`, has, 40, 2);
}

/** A world in which my-job has two idle slices, and the third one never boots. */
async function aHalfGatheredWorld(): Promise<World> {
  const world = aWorldOfJobs({...FOUR_SLOTS, GLEANER_WORKERS_PER_ZONE: '3'});
  world.isStillborn = name => name.endsWith('-2');
  await world.writeJob('my-job', {...CODE, slices: 3});
  await world.until('two slices', async () => (await world.worker(A0))?.phase === 'idle', 20, 2);
  return world;
}

describe('a job of three slices', () => {
  it('gets three TPUs of one zone at once, and each knows its slice', async () => {
    const world = aWorldOfJobs(FOUR_SLOTS);
    await world.writeJob('my-job', {...CODE, slices: 3});
    await untilAtWork(world, 'my-job', 1);
    const {lease} = await jobIn(world);
    assert.equal(lease?.members.length, 3);
    const orders = await Promise.all(atWork(world, 'my-job').map(agent => agent.ask()));
    const slices = orders.map(({body}) => (body.slice as {slice: number; slices: number}).slice);
    assert.deepEqual(slices.toSorted(), [0, 1, 2]);
    for (const agent of atWork(world, 'my-job'))
      await agent.finish({outcome: 'completed', result: agent.worker});
    const {status, result} = await jobIn(world);
    assert.deepEqual([status, result], ['completed', lease?.members[0]?.worker]);
    await world.untilAsleep();
  });

  it('waits until its pool is large enough', async () => {
    const world = aWorldOfJobs(FOUR_SLOTS);
    const submit = {action: 'submit', job: 'my-job', code: 'result = 1', slices: 5};
    const {outcome, reason} = await send(world, submit);
    assert.equal(outcome, 'applied', String(reason));
    await world.minutes(2);
    assert.match(String((await jobIn(world)).reason), /it needs 5 of them, and pool tpu has 4 in each/);
    await send(world, {action: 'scale', workers_per_zone: 5});
    await world.minutes(1);
    assert.doesNotMatch(String((await jobIn(world)).reason), /scale it/);
  });

  it('is refused where TPUs do not reach each other', async () => {
    const world = aWorldOfJobs({...FOUR_SLOTS, GLEANER_MAX_HOSTS: '1'});
    const submit = {action: 'submit', job: 'my-job', code: 'result = 1', slices: 3};
    assert.match(String((await send(world, submit)).reason), /needs TPUs that reach each other.*max_hosts/);
  });

  it('ends with the loss of any slice, and runs again with the two others', async () => {
    const world = aWorldOfJobs({...FOUR_SLOTS, GLEANER_WORKERS_PER_ZONE: '3'});
    await world.writeJob('my-job', {...CODE, slices: 3});
    await untilAtWork(world, 'my-job', 1);
    const [, lost] = atWork(world, 'my-job');
    world.tpus.node(lost?.worker ?? '').state = 'PREEMPTED';
    await untilAtWork(world, 'my-job', 2);
    const {attempts, lease} = await jobIn(world);
    const outcomes = attempts.map(({outcome}) => outcome);
    assert.deepEqual(outcomes, ['preempted']);
    const incarnations = lease?.members.map(({incarnation}) => incarnation);
    assert.deepEqual(incarnations?.toSorted(), [1, 1, 2]);
  });

  it('runs again on three after a recreate of one, and its attempt names the three TPUs before', async () => {
    const world = aWorldOfJobs(FOUR_SLOTS);
    await world.writeJob('my-job', {...CODE, slices: 3});
    await untilAtWork(world, 'my-job', 1);
    const before = (await jobIn(world)).lease?.members ?? [];
    world.control({action: 'recreate', worker: before[2]?.worker ?? ''});
    await untilAtWork(world, 'my-job', 2);
    const {attempts, lease} = await jobIn(world);
    assert.deepEqual([attempts[0]?.outcome, attempts[0]?.members], ['preempted', before]);
    const isSame = (member: object) => isDeepStrictEqual(member, before[2]);
    assert.ok(lease?.members.length === 3 && !lease.members.some(isSame));
  });

  it('never holds slices that another one waits for: two of them share four TPUs one after the other', async () => {
    const world = aWorldOfJobs(FOUR_SLOTS);
    for (const id of ['job-a', 'job-b']) await world.writeJob(id, {...CODE, slices: 3});
    const isAtWork = (id: string) => atWork(world, id).length === 3;
    await world.until('one of them', () => isAtWork('job-a') || isAtWork('job-b'), 40, 2);
    const [first, second] = isAtWork('job-a') ? ['job-a', 'job-b'] : ['job-b', 'job-a'];
    await world.minutes(30, 2);
    assert.equal(atWork(world, String(second)).length, 0);
    assert.equal(world.tpus.nodes.size, 3, 'no TPU waits beside the first job');
    for (const agent of atWork(world, String(first))) await agent.finish({outcome: 'completed'});
    await untilAtWork(world, String(second), 1);
  });

  it('keeps its idle slices from younger jobs and from streams, for GLEANER_BOOT_S at most', async () => {
    const world = await aHalfGatheredWorld();
    await world.writeJob('a-younger-job', CODE);
    world.drop('my-run', 0, someLines(12));
    await world.deliverAll();
    const {body} = await world.agent(A0).ask();
    assert.match(String(body.reason), /^job my-job needs 3 slices of one zone, and 2 are ready/);
    await world.until('the younger job', () => atWork(world, 'a-younger-job').length === 1, 20, 2);
  });

  it('keeps no slice from a job of a higher priority', async () => {
    const world = await aHalfGatheredWorld();
    await world.writeJob('a-greater-job', {...CODE, priority: 1});
    await world.deliverAll();
    const {body} = await world.agent(A0).ask();
    assert.deepEqual(body.lease, {job: 'a-greater-job', epoch: 1});
  });

  it('releases the slices that wait for a missing one', async () => {
    const world = await aHalfGatheredWorld();
    await world.until('their release', async () => (await world.worker(A0))?.phase !== 'idle', 20, 2);
    assert.equal((await jobIn(world)).epoch, 0);
  });

  it('leaves a slice alone that has other work since', async () => {
    const {deps} = aWorldOfJobs(FOUR_SLOTS);
    const [A1, A2] = ['tpu-us-central1-a-1', 'tpu-us-central1-a-2'];
    const members = [HOLDER, {worker: A1, incarnation: 2}, {worker: A2, incarnation: 2}];
    await deps.store.transaction(async tx => {
      workerRecords.set(tx, aWorker({name: A1, phase: 'working', work: 'job:my-job', epoch: 3}));
      workerRecords.set(tx, aWorker({name: A2, phase: 'working', work: 'my-run/000', epoch: 3}));
    });
    const job = aRunningJob({lease: {...HOLDER, epoch: 3, host_count: 1, members}});
    const found = await deps.store.transaction(tx => membersOf(deps, tx, job, A0));
    assert.deepEqual(
      found.map(({name}) => name),
      [A1],
    );
  });
});
