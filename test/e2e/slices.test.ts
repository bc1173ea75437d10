import assert from 'node:assert/strict';
import {createServer, type Server} from 'node:http';
import type {AddressInfo} from 'node:net';
import {FAST} from './home.ts';
import {JobHome} from './job-home.ts';

const POOL = 'big';
const SLICE = `${POOL}-us-central1-a-0`;

/** Adds the numbers of all devices over the hosts, and then runs until the address answers `go`. */
const sumCode = (address: string) => `
import time, urllib.request
count = jax.local_device_count()
numbers = jax.process_index() * count + jnp.arange(count)
result = int(jax.pmap(lambda number: jax.lax.psum(number, "all"), axis_name="all")(numbers)[0])
print(f"sum {result} of {jax.device_count()}", flush=True)
while urllib.request.urlopen("${address}").read() != b"go":
    time.sleep(1)
`;

describe('A job on a slice of a local cloud', () => {
  let cloud: JobHome;
  let server: Server;
  let answer = 'wait';
  before(async () => {
    server = createServer((_request, response) => response.end(answer)).listen(0, '127.0.0.1');
    cloud = await JobHome.start(1, [], {}, FAST);
  });
  after(async () => {
    server.close();
    await cloud?.remove();
  });

  const sizes = [
    {hosts: 2, accelerator: 'v4-16', title: 'of two hosts'},
    {hosts: 4, accelerator: 'v5litepod-16', title: 'of four hosts @long'},
  ];
  for (const {hosts, accelerator, title} of sizes)
    it(`adds over all devices, loses a host, and completes on the next slice: ${title}`, async () => {
      answer = 'wait';
      const {port} = server.address() as AddressInfo;
      const devices = hosts * 4;
      const sum = (devices * (devices - 1)) / 2;
      const create = ['pool', 'create', POOL, '--accelerator', accelerator, '--zones', 'us-central1-a'];
      await cloud.succeeds(...create, '--workers-per-zone', '1');
      const id = await cloud.submit({code: sumCode(`http://127.0.0.1:${port}`), pool: POOL});
      for (const host of [0, hosts - 1]) await cloud.prints(id, `sum ${sum} of ${devices}`, 1, host);
      const listed = JSON.parse(await cloud.succeeds('discover', POOL, '--json'));
      assert.equal(new Set(listed.map(({address}: {address: string}) => address)).size, hosts);

      await cloud.home.fault('dead', `${SLICE}-w-${hosts - 1}`);
      await cloud.home.until(
        'the end of the first attempt',
        () => cloud.job(id),
        job => job?.attempts.length === 1,
      );
      answer = 'go';
      const job = await cloud.ends(id);
      assert.deepEqual(
        [job.status, job.result, job.epoch],
        ['completed', String(sum), 2],
        JSON.stringify(job),
      );
      assert.deepEqual(
        job.attempts.map(({worker, outcome}) => [worker, outcome === 'completed']),
        [
          [SLICE, false],
          [SLICE, true],
        ],
      );
      const [first, second] = job.attempts;
      assert.ok(Number(second?.incarnation) > Number(first?.incarnation), 'the slice was replaced');
      for (const host of [0, hosts - 1]) await cloud.prints(id, `sum ${sum} of ${devices}`, 2, host);
    });
});
