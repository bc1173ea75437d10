import assert from 'node:assert/strict';
import {setTimeout as sleep} from 'node:timers/promises';
import {CloudSchedulerClient} from '@google-cloud/scheduler';
import type {LocalCloud} from '../../emulator/cloud.ts';
import {clientOptionsFor} from '../../shared/google/endpoint.ts';
import {cloudState, Scratch, type Seen} from '../support/machine/a-cloud.ts';
import {until} from '../support/machine/until.ts';

const JOB = {name: 'projects/gleaner-local/locations/us-central1/jobs/gleaner-tick'};

describe('Cloud Scheduler through @google-cloud/scheduler', () => {
  const scratch = new Scratch();
  let cloud: LocalCloud;
  let client: CloudSchedulerClient;
  let seen: () => Seen[];
  const start = async (dir?: string) => {
    ({cloud, seen} = await scratch.cloudWithFunctions({...(dir && {dir}), tick_interval_ms: 20}));
    client = new CloudSchedulerClient(clientOptionsFor(cloud.url, cloud.token));
  };
  before(() => start());
  after(async () => {
    await client.close();
    await scratch.end();
  });
  const ticks = () => seen().filter(line => line.function === 'on-tick');
  /** Waits for more ticks than before. */
  const untilTicks = (more: number) => {
    const before = ticks().length;
    return until('ticks ran', () => ticks().length >= before + more);
  };
  /** Waits until no delivery is under way. A tick that was published before a pause arrives after it. */
  const untilDelivered = () =>
    until('every tick was delivered', async () => {
      const info = await cloudState<{deliveries_pending: number}>(cloud);
      return info.deliveries_pending === 0;
    });

  it('publishes to topic tick, as the Scheduler, every interval from the first start on', async () => {
    const [{state, pubsubTarget}] = await client.getJob(JOB);
    assert.equal(state, 'ENABLED');
    assert.equal(pubsubTarget?.topicName, 'projects/gleaner-local/topics/tick');
    assert.deepEqual(pubsubTarget?.attributes, {source: 'scheduler'});
    await untilTicks(4);
    for (const {data} of ticks()) assert.deepEqual(data.message.attributes, {source: 'scheduler'});
  });

  it('publishes only on demand while its job is paused, and continues when the job is resumed', async () => {
    assert.equal((await client.pauseJob(JOB))[0].state, 'PAUSED');
    await assert.rejects(client.pauseJob(JOB), /must be ENABLED/);
    await untilDelivered();
    const paused = ticks().length;
    await sleep(200);
    await client.runJob(JOB);
    await until('a tick ran', () => ticks().length > paused);
    assert.equal(ticks().length, paused + 1);
    assert.equal((await client.resumeJob(JOB))[0].state, 'ENABLED');
    await assert.rejects(client.resumeJob(JOB), /must be PAUSED/);
    await untilTicks(1);
  });

  it('lists one job and answers 404 to another job', async () => {
    await assert.rejects(client.getJob({name: JOB.name.replace('tick', 'tock')}), {code: 5});
    const [jobs] = await client.listJobs({parent: 'projects/gleaner-local/locations/us-central1'});
    const names = jobs.map(({name}) => name);
    assert.deepEqual(names, [JOB.name]);
  });

  it('keeps a pause over a restart of the cloud', async () => {
    await client.pauseJob(JOB);
    await untilDelivered();
    const count = ticks().length;
    await cloud.close();
    await client.close();
    await start(cloud.dir);
    assert.equal((await client.getJob(JOB))[0].state, 'PAUSED');
    await sleep(200);
    assert.equal(ticks().length, count);
    await client.resumeJob(JOB);
    await untilTicks(1);
  });
});

describe('Cloud Scheduler without functions', () => {
  const scratch = new Scratch(after);

  it('keeps no ticks for functions whose host is away', async () => {
    const cloud = await scratch.cloud({tick_interval_ms: 5});
    await sleep(100);
    const info = await cloudState<{deliveries_pending: number}>(cloud);
    assert.equal(info.deliveries_pending, 0);
  });
});
