/** The life of a job over the real functions: grants, ends of attempts, and the loss of workers. */
import assert from 'node:assert/strict';
import {explainJob} from '../../../client/explanations/explain.ts';
import {execMessage, jobFields} from '../../../shared/contracts/messages/job-schemas.ts';
import {MAX_MACHINE_FAILURES} from '../../../shared/domain/job/lifecycle.ts';
import type {Cause} from '../../../shared/domain/records/causes.ts';
import type {Pool} from '../../../shared/domain/records/pool.ts';
import {NO_ENVIRONMENT} from '../../../shared/domain/records/source.ts';
import {aWorldAtWork, aWorldOfJobs, jobIn, storedJob} from '../../world/scenes/jobs.ts';
import {A0, ONE_SLOT} from '../../world/scenes/places.ts';
import {USD_PER_MINUTE, ONE_SLOT as WITH_PRICE} from '../../world/scenes/priced-run.ts';
import {someLines} from '../../world/shard-plan.ts';
import type {World} from '../../world/world.ts';

const CODE = {code: 'result = 1', status: 'pending'};

/** Ends the job in hand of A0 by the report of its agent. */
async function finish(
  world: World,
  end: {
    outcome: 'completed' | 'failed' | 'preempted' | 'drained';
    cause?: string;
    error?: string;
    result?: string;
  },
) {
  await world.agent(A0).finish(end);
}

/** Lets A0 take the job again. */
function untilAtWork(world: World, epoch: number, most = 15): Promise<void> {
  return world.until(`epoch ${epoch}`, async () => (await jobIn(world)).lease?.epoch === epoch, most, 1);
}

describe('a job', () => {
  it('runs on a node that is created for it, and leaves none behind', async () => {
    const world = aWorldOfJobs();
    world.onAgent = agent => {
      agent.jobEnd = {outcome: 'completed', result: '42'};
    };
    await world.writeJob('my-job', {...CODE, challenge_number: 7, metadata: {submitted_by: 'me'}});
    await world.deliverAll();
    assert.deepEqual(world.asked(), [`create ${A0}#1`], 'its event wakes the tick');
    await world.untilAsleep();
    const job = await jobIn(world);
    assert.deepEqual(
      [job.status, job.result, job.challenge_number, job.metadata, job.error, job.cause],
      ['completed', '42', 7, {submitted_by: 'me'}, null, null],
    );
    assert.deepEqual(job.log_path, 'gs://bucket/jobs/my-job/epoch_1/output/');
    const times = [job.created_at, job.scheduled_at, job.started_at, job.completed_at].map(String);
    assert.deepEqual(times, times.toSorted());
    assert.ok((await world.timeline('job')).some(text => /runs job my-job/.test(text)));
  });

  it('is finished by its TPU when the pool shrinks, however long it takes', async () => {
    const world = await aWorldAtWork({...CODE, timeout: 86_400});
    world.agent(A0).jobEnd = null;
    world.control({action: 'scale', workers_per_zone: 0});
    await world.minutes(90, 1);
    const {phase, incarnation} = (await world.worker(A0)) ?? assert.fail();
    assert.deepEqual([phase, incarnation, (await jobIn(world)).lease?.epoch], ['draining', 1, 1]);
    await finish(world, {outcome: 'completed', result: '42'});
    await world.untilAsleep();
    const {status, result, attempts} = await jobIn(world);
    assert.deepEqual([status, result, attempts.length], ['completed', '42', 1]);
    assert.equal((await world.worker(A0))?.phase, 'gone');
  });

  it('that never ends on a TPU of a smaller pool is ended when it is due', async () => {
    const world = await aWorldAtWork({...CODE, timeout: 1800});
    world.agent(A0).jobEnd = null;
    world.control({action: 'scale', workers_per_zone: 0});
    await world.minutes(40, 1);
    const {status, cause} = await jobIn(world);
    assert.deepEqual([status, cause, (await world.worker(A0))?.phase], ['failed', 'timeout', 'gone']);
  });

  it('is ordered with its code, its variables, its limits and the source of its pool', async () => {
    const world = await aWorldAtWork({
      ...{...CODE, args: ['--steps', '3']},
      ...{timeout: 60, limits: {memory_gb: 2}, environment: {jax_version: 'newest'}, challenge_number: 3},
      env: {STEPS: '3'},
    });
    const {order, lease} = world.agent(A0).job ?? assert.fail();
    assert.deepEqual(lease, {job: 'my-job', epoch: 1});
    assert.deepEqual(order, {
      checkpoint: {
        ...{bucket: 'bucket', folder: 'checkpoints/my-job/', max_gb: 100, max_files: 10_000, every_s: 60},
        versions: [],
      },
      ...{id: 'my-job', code: 'result = 1', args: ['--steps', '3'], command: null, challenge_number: 3},
      ...{timeout_s: 60, fence_s: world.deps.config.lease_s - 15},
      limits: {memory_gb: 2, processes: null, open_files: null, file_gb: null, disk_gb: null, files: null},
      ...{source: null, source_version: 0, bucket: 'bucket', folder: 'jobs/my-job/epoch_1/'},
      ...{env: {STEPS: '3'}, secrets: null, inputs: [], own_url: 'gs://bucket/checkpoints/my-job/own'},
      environment: {jax_version: 'newest', setup_script: null, config_file: null, ramfs_dir: null},
    });
  });

  it('has shell texts without the CR of Windows, and arguments and code as they are', async () => {
    const world = await aWorldAtWork({
      status: 'pending',
      command: 'set -e\r\nX=5\r\nprintf "a\rb"\r',
      environment: {setup_script: 'export NAME=gleaner\r\n'},
    });
    const {order} = world.agent(A0).job ?? assert.fail();
    const {command, environment} = order as Record<string, unknown>;
    assert.equal(command, 'set -e\nX=5\nprintf "a\rb"');
    assert.deepEqual(environment, {...NO_ENVIRONMENT, setup_script: 'export NAME=gleaner\n'});
    const exec = {exec: 'e', target: 'all', argv: ['a\r\nb\r\n']};
    assert.deepEqual(
      [true, false].map(shell => execMessage.parse({...exec, shell}).argv),
      [['a\nb\n'], exec.argv],
    );
    assert.equal(jobFields.code.parse("text = 'a\r\n'"), "text = 'a\r\n'");
  });

  it('comes before streams, and a job of higher priority before others', async () => {
    const world = aWorldOfJobs();
    world.onAgent = agent => {
      agent.jobEnd = {outcome: 'completed', result: '1'};
    };
    world.drop('my-run', 0, someLines(4));
    for (const [id, priority] of [
      ['low', -1],
      ['first', 0],
      ['high', 5],
    ] as const) {
      world.now += 1000;
      await world.writeJob(id, {...CODE, priority});
    }
    await world.untilAsleep();
    const began = await Promise.all(
      ['high', 'first', 'low'].map(async id => String((await jobIn(world, id)).started_at)),
    );
    assert.deepEqual(began, began.toSorted());
    const stream = (await world.store.query('events')).find(({data}) =>
      /works on my-run/.test(String(data.text)),
    );
    assert.ok(String(stream?.data.at) > String(began[2]));
    await world.assertStoredOnce('my-run', '000', someLines(4));
  });

  it('gets the TPU of a long stream after job_wait_s, and the stream goes on after it', async () => {
    const world = aWorldOfJobs();
    world.onAgent = agent => {
      agent.jobEnd = {outcome: 'completed', result: '1'};
    };
    const text = someLines(90);
    world.drop('my-run', 0, text);
    await world.until('work', async () => (await world.worker(A0))?.work === 'my-run/000', 9, 1);
    await world.writeJob('my-job', CODE);
    await world.minutes(2, 1);
    assert.deepEqual([(await jobIn(world)).status, world.agent(A0).told], ['scheduled', []]);
    await world.until('its end', async () => (await jobIn(world)).status === 'completed', 6, 1);
    assert.notEqual((await world.stream('my-run', '000'))?.status, 'completed');
    assert.ok((await world.timeline('stream')).some(line => /job my-job waits for a worker/.test(line)));
    await world.untilStoredOnce('my-run', '000', text);
    assert.equal((await world.stream('my-run', '000'))?.failures, 0);
  });
});

describe('an attempt', () => {
  it('that fails by itself uses a retry, and without one fails the job', async () => {
    const world = await aWorldAtWork({...CODE, max_retries: 1});
    await finish(world, {outcome: 'failed', cause: 'exit', error: 'it broke'});
    assert.deepEqual([(await jobIn(world)).status, (await jobIn(world)).failures], ['scheduled', 1]);
    await untilAtWork(world, 2);
    await finish(world, {outcome: 'failed', cause: 'exit', error: 'it broke again'});
    const job = await jobIn(world);
    assert.deepEqual(
      [job.status, job.cause, job.error, job.attempts.length],
      ['failed', 'exit', 'it broke again', 2],
    );
  });

  it('that is preempted with notice costs the job nothing, and it runs again', async () => {
    const world = await aWorldAtWork();
    for (const epoch of [1, 2, 3]) {
      await untilAtWork(world, epoch);
      await world.agent(A0).preempted();
      world.tpus.node(A0).state = 'PREEMPTED';
    }
    const job = await jobIn(world);
    assert.deepEqual([job.status, job.failures, job.machine_failures], ['scheduled', 0, 0]);
    const outcomes = job.attempts.map(({outcome}) => outcome);
    assert.deepEqual(outcomes, ['preempted', 'preempted', 'preempted']);
  });

  const losses: {name: string; lose: (world: World) => void; then: [string, Cause, number]}[] = [
    {
      name: 'is preempted without notice',
      lose: world => {
        world.preempt(A0);
      },
      then: ['preempted', 'preempted', 0],
    },
    {name: 'vanishes', lose: world => void world.zombify(A0), then: ['preempted', 'preempted', 0]},
    {
      name: 'falls silent',
      lose: world => {
        world.agent(A0).silent = true;
      },
      then: ['failed', 'machine', 1],
    },
    {
      name: 'is recreated by a message',
      lose: world => void world.control({action: 'recreate', worker: A0}),
      then: ['preempted', 'preempted', 0],
    },
    {
      name: 'restarts in the middle of it',
      lose: world => {
        world.boot(A0).jobEnd = null;
      },
      then: ['failed', 'machine', 1],
    },
  ];
  for (const {name, lose, then} of losses)
    it(`whose worker ${name} is recorded once, and the job runs again`, async () => {
      const world = await aWorldAtWork();
      lose(world);
      await untilAtWork(world, 2);
      const job = await jobIn(world);
      const [attempt, more] = job.attempts;
      assert.deepEqual([attempt?.outcome, attempt?.cause, job.machine_failures], then);
      assert.deepEqual([more, job.failures, attempt?.epoch], [undefined, 0, 1]);
      await finish(world, {outcome: 'completed', result: 'done'});
      assert.deepEqual([(await jobIn(world)).status, (await jobIn(world)).result], ['completed', 'done']);
    });

  for (const cause of ['machine', 'tpu'] as const)
    it(`whose machine fails by "${cause}" is replaced, and such attempts fail the job in the end`, async () => {
      const world = await aWorldAtWork({...CODE, max_retries: 100});
      for (let epoch = 1; epoch <= MAX_MACHINE_FAILURES; epoch++) {
        // A zone that loses many nodes soon after their creation is asked more rarely.
        await untilAtWork(world, epoch, 120);
        await finish(world, {outcome: 'failed', cause, error: 'its chips are gone'});
        if (epoch === MAX_MACHINE_FAILURES) break;
        const why = explainJob(await jobIn(world), {jobs_wait: null} as Pool, undefined);
        assert.match(why?.evidence ?? '', new RegExp(`^${epoch} of at most 5 machines failed .*are gone$`));
      }
      const job = await jobIn(world);
      assert.deepEqual([job.status, job.cause, job.failures], ['failed', cause, 0]);
      assert.match(job.error ?? '', /machines failed while working on it.*its chips are gone/);
      await world.untilAsleep();
      assert.equal(world.tpus.made.length, MAX_MACHINE_FAILURES);
      assert.match(
        String((await world.store.get(`workers/${A0}/attempts/000001`))?.cause),
        /its chips are gone/,
      );
    });

  it('without progress for hours is no standstill', async () => {
    const world = await aWorldAtWork({...CODE, timeout: 36_000}, {...ONE_SLOT, GLEANER_STALL_S: '300'});
    await world.minutes(120, 1);
    const {status, epoch} = await jobIn(world);
    assert.deepEqual([status, epoch, world.tpus.made.length], ['running', 1, 1]);
  });

  it('longer than GLEANER_LONG_JOB_S is reported once', async () => {
    const world = await aWorldAtWork({...CODE, timeout: 36_000}, {...ONE_SLOT, GLEANER_LONG_JOB_S: '600'});
    const long = () => world.logs.filter(({signal}) => signal === 'job-long').length;
    await world.minutes(9, 1);
    assert.equal(long(), 0);
    await world.minutes(20, 1);
    assert.equal(long(), 1);
  });
});

describe('a job that is due', () => {
  it('by its timeout ends though its agent says nothing of it, and its worker hears so', async () => {
    const world = await aWorldAtWork({...CODE, timeout: 60});
    await world.until('its end', async () => (await jobIn(world)).status === 'failed', 6, 1);
    const job = await jobIn(world);
    assert.deepEqual([job.cause, job.failures], ['timeout', 1]);
    assert.match(job.error ?? '', /ran longer than its timeout of 60 s/);
    const agent = world.agent(A0);
    await agent.beat();
    assert.match(String(agent.told), /^(stop|exit)$/);
    await world.untilAsleep();
  });

  it('by its deadline fails while it runs, in spite of its retries', async () => {
    const world = aWorldOfJobs();
    const deadline_at = new Date(world.now + 8 * 60_000).toISOString();
    await world.writeJob('my-job', {...CODE, timeout: 36_000, max_retries: 9, deadline_at});
    await world.until('its end', async () => (await storedJob(world)).status === 'failed', 12, 1);
    const job = await jobIn(world);
    assert.deepEqual([job.cause, job.attempts.length], ['deadline', 1]);
  });

  it('by its deadline fails while it waits, without a worker', async () => {
    const world = aWorldOfJobs();
    world.isStillborn = () => true;
    await world.writeJob('my-job', {...CODE, deadline_at: new Date(world.now + 120_000).toISOString()});
    await world.minutes(4, 1);
    const job = await jobIn(world);
    assert.deepEqual([job.status, job.cause, job.attempts.length], ['failed', 'deadline', 0]);
  });

  it('by its budget fails, and has cost about that', async () => {
    const world = await aWorldAtWork(
      {...CODE, timeout: 36_000, max_retries: 9, budget_usd: 5 * USD_PER_MINUTE},
      WITH_PRICE,
    );
    await world.until('its end', async () => (await jobIn(world)).status === 'failed', 12, 1);
    const job = await jobIn(world);
    assert.deepEqual([job.cause, job.attempts.length], ['budget', 1]);
    assert.ok(
      job.spent_usd >= 5 * USD_PER_MINUTE && job.spent_usd <= 7 * USD_PER_MINUTE,
      String(job.spent_usd),
    );
  });
});

describe('a worker with a job', () => {
  it('that the pool needs no more finishes it within the time to drain', async () => {
    const world = await aWorldAtWork({...CODE, timeout: 36_000});
    world.control({action: 'scale', workers_per_zone: 0});
    await world.minutes(2, 1);
    assert.equal((await world.worker(A0))?.phase, 'draining');
    assert.ok(world.agent(A0).told.includes('drain'));
    await finish(world, {outcome: 'completed', result: 'done'});
    assert.equal((await jobIn(world)).status, 'completed');
    await world.untilAsleep();
  });

  it('sends heartbeats at the interval of its pool', async () => {
    const world = await aWorldAtWork(CODE, {...ONE_SLOT, GLEANER_POLL_S: '2'});
    const body = {action: 'heartbeat', worker: A0, incarnation: 1, host: 0, phase: 'running', progress: null};
    const answer = await world.api({...body, lease: {job: 'my-job', epoch: 1}});
    assert.deepEqual([answer.body.action, answer.body.heartbeat_s], ['continue', 2]);
    assert.ok(answer.body.lease_expires_at);
  });
});
