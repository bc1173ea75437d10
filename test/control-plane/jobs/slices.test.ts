/** Jobs on a slice of four hosts, over the real functions. */
import assert from 'node:assert/strict';
import type {FakeAgent} from '../../world/agent.ts';
import {aWorldOfJobs, jobIn} from '../../world/scenes/jobs.ts';
import {A0, ONE_SLOT} from '../../world/scenes/places.ts';
import type {World} from '../../world/world.ts';

const SLICE = {...ONE_SLOT, GLEANER_ACCELERATOR: 'v5litepod-16', GLEANER_MAX_WORKERS: '1'};
const CODE = {code: 'result = 1', status: 'pending', timeout: 3600};
const HOSTS = [0, 1, 2, 3];

/** A world in which the four hosts of A0 have the job, and end it when the test says so. */
async function aSliceAtWork(more: object = {}): Promise<World> {
  const world = aWorldOfJobs(SLICE);
  await world.writeJob('my-job', {...CODE, ...more});
  await untilAllHave(world, 1);
  return world;
}

function untilAllHave(world: World, epoch: number): Promise<void> {
  const has = ({job}: FakeAgent) => job?.lease.epoch === epoch;
  return world.until(`epoch ${epoch} on all hosts`, () => agentsWith(world, has) === 4, 30, 1);
}

function agentsWith(world: World, has: (agent: FakeAgent) => boolean): number {
  return [...world.agents.values()].filter(has).length;
}

const complete = (world: World, host: number) =>
  world.agent(A0, host).finish({outcome: 'completed', result: `of ${host}`});

describe('a slice of four hosts', () => {
  it('gets no work before its last host is ready, and then each host has the same attempt', async () => {
    const world = aWorldOfJobs(SLICE);
    world.onAgent = agent => {
      agent.jobEnd = null;
      agent.silent = agent.host === 3;
    };
    await world.writeJob('my-job', CODE);
    await world.until('three hosts', () => agentsWith(world, ({phase}) => phase === 'idle') === 3);
    const answer = await world.agent(A0).ask();
    assert.match(String(answer.body.reason), /3 of 4 hosts are ready/);
    assert.equal((await world.worker(A0))?.phase, 'booting');
    world.agent(A0, 3).silent = false;
    await untilAllHave(world, 1);
    assert.equal((await world.worker(A0))?.phase, 'working');
    const again = await world.agent(A0, 2).ask();
    assert.deepEqual(
      [again.body.lease, (again.body.slice as {host: number}).host],
      [{job: 'my-job', epoch: 1}, 2],
    );
  });

  it('completes a job with its last host, and has the result of host 0', async () => {
    const world = await aSliceAtWork();
    for (const host of [0, 2, 1]) await complete(world, host);
    assert.equal((await jobIn(world)).status, 'running');
    await complete(world, 3);
    const {status, result, ends, attempts} = await jobIn(world);
    assert.deepEqual(
      [status, result, Object.keys(ends).length, attempts.length],
      ['completed', 'of 0', 4, 1],
    );
    await world.untilAsleep();
  });

  it('waits for a host that works or stores its artifacts for longer than the others', async () => {
    const world = await aSliceAtWork();
    for (const host of [0, 1, 3]) await complete(world, host);
    await world.minutes(30, 0);
    assert.equal((await jobIn(world)).status, 'running');
    await complete(world, 2);
    const {status, attempts} = await jobIn(world);
    assert.deepEqual([status, attempts.length], ['completed', 1]);
  });

  it('ends an attempt at once with the failure of any host, and each other host stops', async () => {
    const world = await aSliceAtWork({max_retries: 1});
    await world
      .agent(A0, 2)
      .finish({outcome: 'failed', cause: 'memory', error: 'out of memory', exit_code: 137});
    const {status, error, attempts} = await jobIn(world);
    assert.deepEqual(
      [status, error, attempts[0]?.exit_code],
      ['scheduled', 'host 2 of 4: out of memory', 137],
    );
    for (const host of [0, 1, 3]) await world.agent(A0, host).beat();
    assert.deepEqual(
      [0, 1, 3].map(host => world.agent(A0, host).told),
      [['stop'], ['stop'], ['stop']],
    );
    await untilAllHave(world, 2);
  });

  it('waits for the cause where JAX ends the hosts of a lost peer', async () => {
    const lost = {outcome: 'failed', cause: 'peer', error: 'a peer is lost', exit_code: 134} as const;
    for (const [end, then] of [
      [{outcome: 'failed', cause: 'exit', error: 'a bug'} as const, ['exit', 'host 3 of 4: a bug']],
      [undefined, ['machine', 'host 3 of 4: it did not report its end']],
    ] as const) {
      const world = await aSliceAtWork();
      for (const host of [1, 0, 2]) await world.agent(A0, host).finish(lost);
      assert.equal((await jobIn(world)).status, 'running');
      if (end) await world.agent(A0, 3).finish(end);
      else await world.minutes(1, 0);
      const [attempt] = (await jobIn(world)).attempts;
      assert.deepEqual([attempt?.cause, attempt?.error], then);
    }
  });

  it('is replaced when one host falls silent, and its job goes on', async () => {
    const world = await aSliceAtWork();
    world.agent(A0, 1).silent = true;
    await untilAllHave(world, 2);
    assert.equal((await world.worker(A0))?.incarnation, 2);
    const [attempt] = (await jobIn(world)).attempts;
    assert.match(String(attempt?.error), /is lost: host 1 has said nothing for 120 s/);
  });

  it('runs its job again on all hosts after a recreate', async () => {
    const world = await aSliceAtWork();
    world.control({action: 'recreate', worker: A0});
    await untilAllHave(world, 2);
    const {attempts, lease} = await jobIn(world);
    assert.deepEqual([attempts[0]?.outcome, lease?.incarnation], ['preempted', 2]);
  });

  it('ends the attempt during which Google repairs one of its hosts', async () => {
    const world = await aSliceAtWork();
    world.tpus.node(A0).state = 'REPAIRING';
    await world.tick();
    world.boot(A0, 1).isBound = true;
    await world.agent(A0, 1).heartbeat();
    const {status, attempts} = await jobIn(world);
    assert.deepEqual([status, attempts.length, (await world.worker(A0))?.work], ['scheduled', 1, null]);
  });

  it('ends the attempt during which one of its hosts restarts, and waits for that host', async () => {
    const world = await aSliceAtWork();
    const before = world.agent(A0, 1);
    world.boot(A0, 1).jobEnd = null;
    world.agent(A0, 1).isBound = true;
    await world.agent(A0, 1).heartbeat();
    assert.equal(before.incarnation, 1);
    const {attempts} = await jobIn(world);
    assert.equal(attempts[0]?.error, 'host 1 of 4 restarted in the middle of it');
    assert.equal((await world.worker(A0))?.phase, 'booting');
    await untilAllHave(world, 2);
    assert.equal((await world.worker(A0))?.incarnation, 1);
  });

  it('runs a command on each of its hosts', async () => {
    const world = await aSliceAtWork();
    world.exec({exec: 'e1', target: A0, argv: ['true']});
    await world.deliverAll();
    for (const host of HOSTS) {
      await world.agent(A0, host).heartbeat();
      assert.deepEqual(world.agent(A0, host).execs, ['e1'], `host ${host}`);
      assert.ok(await world.agent(A0, host).takeExec('e1'));
    }
    for (const host of HOSTS) await world.agent(A0, host).endExec('e1', {outcome: 'exited', exit_code: 0});
    assert.deepEqual((await world.worker(A0))?.execs, []);
    assert.equal((await world.store.get('execs/e1'))?.hosts_done, 4);
  });
});
