import assert from 'node:assert/strict';
import {createServer, type Server} from 'node:http';
import type {AddressInfo} from 'node:net';
import {FAST} from '../support/machine/home.ts';
import {JobHome} from './job-home.ts';

const POOL = 'big';

/** Adds the numbers of all devices over the hosts, and then runs until the address answers `go`. */
const sumCode = (address: string) => `
import os, time, urllib.request
count = jax.local_device_count()
numbers = jax.process_index() * count + jnp.arange(count)
result = int(jax.pmap(lambda number: jax.lax.psum(number, "all"), axis_name="all")(numbers)[0])
print(f"sum {result} of {jax.device_count()} devices, slice {os.environ['JOB_SLICE']}", flush=True)
while urllib.request.urlopen("${address}").read() != b"go":
    time.sleep(1)
`;

describe('A job on a slice of a local cloud', () => {
  let cloud: JobHome;
  let server: Server;
  let answer = 'wait';
  // The loss in one test uses up the share of silent TPUs that a zone replaces at once: each test has a cloud of its own.
  beforeEach(async () => {
    server = createServer((_request, response) => response.end(answer)).listen(0, '127.0.0.1');
    cloud = await JobHome.start(1, [], {}, FAST);
  });
  afterEach(async () => {
    server.close();
    await cloud?.remove();
  });

  const sizes = [
    {slices: 1, hosts: 2, accelerator: 'v4-16', title: 'a slice of two hosts'},
    {slices: 1, hosts: 4, accelerator: 'v5litepod-16', title: 'a slice of four hosts @long'},
    {slices: 2, hosts: 2, accelerator: 'v4-16', title: 'two slices of two hosts @long'},
  ];
  for (const {slices, hosts, accelerator, title} of sizes)
    it(`adds over all devices, loses a host, and completes on the next slice: ${title}`, async () => {
      answer = 'wait';
      const {port} = server.address() as AddressInfo;
      const devices = slices * hosts * 4;
      const last = slices * hosts - 1;
      const sum = (devices * (devices - 1)) / 2;
      const create = ['pool', 'create', POOL, '--accelerator', accelerator, '--zones', 'us-central1-a'];
      await cloud.succeeds(...create, '--workers-per-zone', String(slices));
      const fields = {code: sumCode(`http://127.0.0.1:${port}`), pool: POOL};
      const id = await cloud.submit(fields, '--slices', String(slices));
      const isRight = async (epoch: number) => {
        const text = `sum ${sum} of ${devices} devices, slice`;
        await cloud.prints(id, `${text} 0`, epoch, 0);
        await cloud.prints(id, `${text} ${slices - 1}`, epoch, last);
      };
      await isRight(1);
      const listed = JSON.parse(await cloud.succeeds('discover', POOL, '--json'));
      assert.equal(new Set(listed.map(({address}: {address: string}) => address)).size, slices * hosts);

      const running = (await cloud.job(id))?.lease;
      const lost = running?.members.at(-1)?.worker ?? running?.worker;
      const before = (await cloud.workers()).find(({name}) => name === lost);
      await cloud.home.fault('dead', `${lost}-w-${hosts - 1}`);
      await cloud.home.until(
        'the end of the first attempt',
        () => cloud.job(id),
        job => job?.attempts.length === 1,
      );
      answer = 'go';
      await isRight(2);
      const job = await cloud.ends(id);
      assert.deepEqual(
        [job.status, job.result, job.epoch],
        ['completed', String(sum), 2],
        JSON.stringify(job),
      );
      assert.deepEqual(
        job.attempts.map(({outcome}) => outcome === 'completed'),
        [false, true],
      );
      const after = (await cloud.workers()).find(({name}) => name === lost);
      assert.ok(Number(after?.incarnation) > Number(before?.incarnation), 'the lost slice was replaced');
    });
});
