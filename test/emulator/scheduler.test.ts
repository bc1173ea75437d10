import assert from 'node:assert/strict';
import {setTimeout as sleep} from 'node:timers/promises';
import {CloudSchedulerClient} from '@google-cloud/scheduler';
import type {LocalCloud} from '../../emulator/cloud.ts';
import {clientOptionsFor} from '../../shared/google/endpoint.ts';
import {Scratch, until} from './a-cloud.ts';

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
  const ticksOf = (lines: {function: string}[]) => lines.filter(line => line.function === 'on-tick');

  it('has a paused job at first, which ticks only while enabled, one tick at a time', async () => {
    const {cloud, seen} = await scratch.cloudWithFunctions({tick_interval_ms: 5});
    const client = aClient(cloud);
    assert.equal((await client.getJob(job))[0].state, 'PAUSED');
    assert.deepEqual(ticksOf(seen()), []);
    assert.equal((await client.resumeJob(job))[0].state, 'ENABLED');
    await until('four ticks ran', () => ticksOf(seen()).length >= 4);
    assert.equal((await client.pauseJob(job))[0].state, 'PAUSED');
    // A tick in progress continues, and may not have reached its function.
    await until('the last tick was answered', async () => (await client.getJob(job))[0].status?.code === 0);
    const order = seen().map(line => line.function);
    order.forEach((name, i) => {
      assert.equal(name, i % 2 === 0 ? 'on-tick' : 'on-tick-end');
    });
    await sleep(200);
    assert.equal(seen().length, order.length);
    assert.ok(seen().every(line => line.function !== 'on-tick' || line.job === 'gleaner-tick'));
  });

  it('refuses to pause a paused job and to resume an enabled job, as documented', async () => {
    const {cloud} = await scratch.cloudWithFunctions({tick_interval_ms: 5});
    const client = aClient(cloud);
    await assert.rejects(client.pauseJob(job), /must be ENABLED/);
    await client.resumeJob(job);
    await assert.rejects(client.resumeJob(job), /must be PAUSED/);
  });

  it('runs a paused job on demand', async () => {
    const {cloud, seen} = await scratch.cloudWithFunctions();
    await aClient(cloud).runJob(job);
    await until('one tick ran', () => ticksOf(seen()).length === 1);
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

  it('keeps the job enabled over a restart of the cloud', async () => {
    const {cloud, seen} = await scratch.cloudWithFunctions({tick_interval_ms: 5});
    await aClient(cloud).resumeJob(job);
    await until('one tick ran', () => ticksOf(seen()).length >= 1);
    await cloud.close();
    const count = ticksOf(seen()).length;
    const {cloud: again} = await scratch.cloudWithFunctions({dir: cloud.dir, tick_interval_ms: 5});
    assert.equal((await aClient(again).getJob(job))[0].state, 'ENABLED');
    await until('a tick ran after the restart', () => ticksOf(seen()).length > count);
  });

  it('ticks again after ticks without a function host', async () => {
    const cloud = await scratch.cloud({tick_interval_ms: 5});
    await aClient(cloud).resumeJob(job);
    await cloud.close();
    const {seen} = await scratch.cloudWithFunctions({dir: cloud.dir, tick_interval_ms: 5});
    await until('two ticks ran', () => ticksOf(seen()).length >= 2);
  });
});
