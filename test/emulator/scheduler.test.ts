import assert from 'node:assert/strict';
import {setTimeout as sleep} from 'node:timers/promises';
import {CloudSchedulerClient} from '@google-cloud/scheduler';
import type {LocalCloud} from '../../emulator/cloud.ts';
import {clientOptionsFor} from '../../shared/google/endpoint.ts';
import {until} from '../support/until.ts';
import {Scratch, type Seen} from './a-cloud.ts';

describe('Cloud Scheduler through @google-cloud/scheduler', () => {
  const scratch = new Scratch();
  const clients: CloudSchedulerClient[] = [];
  afterEach(async () => {
    for (const client of clients.splice(0)) await client.close();
    await scratch.end();
  });
  const aClient = (cloud: LocalCloud) => {
    const client = new CloudSchedulerClient(clientOptionsFor(cloud.url, cloud.token));
    clients.push(client);
    return client;
  };
  const job = {name: 'projects/gleaner-local/locations/us-central1/jobs/gleaner-tick'};
  const ticksOf = (lines: Seen[]) => lines.filter(line => line.function === 'on-tick');
  /** Waits until no delivery is under way. A tick that was published before a pause arrives after it. */
  const untilDelivered = (cloud: LocalCloud) =>
    until('every tick was delivered', async () => {
      const {deliveries_pending} = (await (await fetch(`${cloud.url}/_local`)).json()) as {
        deliveries_pending: number;
      };
      return deliveries_pending === 0;
    });

  it('publishes to topic tick, as the Scheduler, every interval from the first start on', async () => {
    const {cloud, seen} = await scratch.cloudWithFunctions({tick_interval_ms: 20});
    assert.equal((await aClient(cloud).getJob(job))[0].state, 'ENABLED');
    await until('four ticks ran', () => ticksOf(seen()).length >= 4);
    const [target] = await aClient(cloud).getJob(job);
    assert.equal(target.pubsubTarget?.topicName, 'projects/gleaner-local/topics/tick');
    assert.deepEqual(target.pubsubTarget?.attributes, {source: 'scheduler'});
    for (const {data} of ticksOf(seen())) assert.deepEqual(data.message.attributes, {source: 'scheduler'});
  });

  it('publishes nothing while its job is paused, and goes on when the job is resumed', async () => {
    const {cloud, seen} = await scratch.cloudWithFunctions({tick_interval_ms: 20});
    const client = aClient(cloud);
    await until('a tick ran', () => ticksOf(seen()).length >= 1);
    assert.equal((await client.pauseJob(job))[0].state, 'PAUSED');
    await untilDelivered(cloud);
    const paused = ticksOf(seen()).length;
    await sleep(200);
    assert.equal(ticksOf(seen()).length, paused);
    assert.equal((await client.resumeJob(job))[0].state, 'ENABLED');
    await until('a tick ran after the pause', () => ticksOf(seen()).length > paused);
  });

  it('refuses to pause a paused job and to resume an enabled job, as documented', async () => {
    const {cloud} = await scratch.cloudWithFunctions();
    const client = aClient(cloud);
    await assert.rejects(client.resumeJob(job), /must be PAUSED/);
    await client.pauseJob(job);
    await assert.rejects(client.pauseJob(job), /must be ENABLED/);
  });

  it('runs a paused job on demand', async () => {
    const {cloud, seen} = await scratch.cloudWithFunctions();
    const client = aClient(cloud);
    await client.pauseJob(job);
    await client.runJob(job);
    await until('one tick ran', () => ticksOf(seen()).length === 1);
    assert.deepEqual(ticksOf(seen())[0]?.data.message.attributes, {source: 'scheduler'});
    assert.equal((await client.getJob(job))[0].state, 'PAUSED');
  });

  it('lists one job and answers 404 to another job', async () => {
    const cloud = await scratch.cloud();
    const client = aClient(cloud);
    await assert.rejects(client.getJob({name: job.name.replace('tick', 'tock')}), {code: 5});
    const [jobs] = await client.listJobs({parent: 'projects/gleaner-local/locations/us-central1'});
    assert.deepEqual(
      jobs.map(({name}) => name),
      [job.name],
    );
  });

  it('keeps a pause over a restart of the cloud', async () => {
    const {cloud, seen} = await scratch.cloudWithFunctions({tick_interval_ms: 20});
    await until('one tick ran', () => ticksOf(seen()).length >= 1);
    await aClient(cloud).pauseJob(job);
    await untilDelivered(cloud);
    await cloud.close();
    const count = ticksOf(seen()).length;
    const {cloud: again} = await scratch.cloudWithFunctions({dir: cloud.dir, tick_interval_ms: 20});
    assert.equal((await aClient(again).getJob(job))[0].state, 'PAUSED');
    await sleep(200);
    assert.equal(ticksOf(seen()).length, count);
    await aClient(again).resumeJob(job);
    await until('a tick ran after the restart', () => ticksOf(seen()).length > count);
  });

  it('keeps no ticks for functions whose host is away', async () => {
    const cloud = await scratch.cloud({tick_interval_ms: 5});
    await sleep(100);
    await untilDelivered(cloud);
    await cloud.close();
    const {seen} = await scratch.cloudWithFunctions({dir: cloud.dir, tick_interval_ms: 20});
    await until('two ticks ran', () => ticksOf(seen()).length >= 2);
  });
});
