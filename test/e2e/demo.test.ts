import assert from 'node:assert/strict';
import {existsSync} from 'node:fs';
import {createServer} from 'node:net';
import {join} from 'node:path';
import {fileURLToPath} from 'node:url';
import * as command from '../support/machine/command.ts';
import {Folder} from '../support/machine/folder.ts';
import {gleaner, processes, texts} from '../support/machine/home.ts';
import {listen, portOf} from '../support/machine/listen.ts';

const DATA = fileURLToPath(new URL('../../../shared/data/', import.meta.url));

describe('gleaner demo', () => {
  const folder = new Folder(after);

  // Before each merge the gate runs `npm start`, which is this command with its own input.
  it('ends with a verified run after a preemption, with shards in its folder and without processes @long', async () => {
    const input = folder.put('input.jsonl', texts(300, 'd'));
    const args = ['demo', '--input', input, '--port', '0', '--dir', folder.at('plain')];
    const {code, stdout, stderr} = await gleaner(args);
    assert.equal(code, 0, stdout + stderr);
    assert.match(stdout, /^verified: demo$/m);
    assert.match(stdout, /1 preemption injected, all work recovered/);
    assert.match(stdout, /^\d\d:\d\d:\d\d {2}PREEMPTED +tpu-.* in the middle of stream 00[01]$/m);
    assert.match(stdout, /was preempted/);
    const times = [...stdout.matchAll(/^\d\d:\d\d:\d\d(?= {2})/gm)].map(([time]) => time);
    // Times after midnight follow those before.
    const ordered = times.map(time => (time < (times[0] ?? '') ? `next day ${time}` : time));
    assert.deepEqual(ordered, ordered.toSorted());
    assert.match(stdout, /^\d\d:\d\d:\d\d {2}stored +Shards \d.* of demo\/00\d stored$/m);
    const shards = folder.names('plain/buckets/gleaner-local/activations/demo/tpu_0');
    const count = shards.filter(name => name.endsWith('.safetensors')).length;
    assert.ok(count >= 4 && count <= 12, shards.join());
    assert.deepEqual(
      processes().filter(({args}) => args.includes(folder.path)),
      [],
    );
    const again = await gleaner(['verify', 'demo', '--dir', folder.at('plain'), '--json']);
    assert.equal(again.code, 0, again.stderr);
    const {ok, anchored} = JSON.parse(again.stdout);
    assert.deepEqual({ok, anchored}, {ok: true, anchored: true});
  });

  for (const file of ['arc-agi-training.jsonl', 'gsm8k-test.jsonl'])
    it(`extracts ${file} in 3 streams through 2 preemptions @long`, async function () {
      if (!existsSync(join(DATA, file))) {
        console.log(`  skipped: ${file} is not beside the project`);
        this.skip();
      }
      const where = folder.at(file);
      const args = ['demo', '--input', join(DATA, file), '--dir', where, '--json'];
      const counts = ['--streams', '3', '--workers', '2', '--preempt', '2'];
      const {code, stdout, stderr} = await gleaner([...args, ...counts]);
      assert.equal(code, 0, stdout + stderr);
      const result = JSON.parse(stdout);
      assert.equal(result.ok, true);
      assert.equal(result.preemptions, 2);
      assert.equal(result.stored_once + result.rejected, result.samples);
      assert.ok(result.stored_once > result.samples * 0.9, stdout);
    });
});

describe('gleaner local up', () => {
  const folder = new Folder(afterEach);
  it('names a port that is in use', async () => {
    const server = createServer();
    await listen(server);
    const port = portOf(server);
    const words = ['local', 'up', '--port', String(port), '--dir', folder.at('up')];
    const {code, stderr} = await command.gleaner(words);
    server.close();
    assert.equal(code, 1);
    assert.match(stderr, new RegExp(`${port}: another program has the port`));
  });

  it('names a missing program in one line before it starts anything', async () => {
    const {code, stdout, stderr} = await command.gleaner(
      ['local', 'up', '--emulators', '--json', '--dir', folder.at('up')],
      {env: {PATH: '/nowhere'}},
    );
    assert.equal(code, 1);
    const reason =
      "Failed to find Google's Firestore emulator: gcloud is not installed; install the Google Cloud CLI";
    assert.deepEqual(JSON.parse(stdout), {error: reason});
    assert.equal(stderr, `gleaner: ${reason}\n`);
  });
});
