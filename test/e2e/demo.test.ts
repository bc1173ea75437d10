import assert from 'node:assert/strict';
import {existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync} from 'node:fs';
import {type AddressInfo, createServer} from 'node:net';
import {tmpdir} from 'node:os';
import {dirname, join} from 'node:path';
import {fileURLToPath} from 'node:url';
import {lockFolder} from '../../emulator/state/database.ts';
import * as command from '../support/machine/command.ts';
import {Folder} from '../support/machine/folder.ts';
import {gleaner, processes, texts} from '../support/machine/home.ts';

const DATA = fileURLToPath(new URL('../../../shared/data/', import.meta.url));

describe('gleaner demo', () => {
  let dir: string;
  before(() => {
    dir = mkdtempSync(join(tmpdir(), 'gleaner-demo-'));
  });
  after(() => rmSync(dir, {recursive: true, force: true}));

  // Before each merge the gate runs `npm start`, which is this command with its own input.
  it('ends with a verified run after a preemption, with shards in its folder and without processes @long', async () => {
    const input = join(dir, 'input.jsonl');
    writeFileSync(input, texts(300, 'd'));
    const args = ['demo', '--input', input, '--port', '0', '--dir', join(dir, 'plain')];
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
    const shards = readdirSync(join(dir, 'plain/buckets/gleaner-local/activations/demo/tpu_0'));
    const count = shards.filter(name => name.endsWith('.safetensors')).length;
    assert.ok(count >= 4 && count <= 12, shards.join());
    assert.deepEqual(
      processes().filter(({args}) => args.includes(dir)),
      [],
    );
    const again = await gleaner(['verify', 'demo', '--dir', join(dir, 'plain'), '--json']);
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
      const where = join(dir, file);
      const args = [
        'demo',
        '--input',
        join(DATA, file),
        '--streams',
        '3',
        '--workers',
        '2',
        '--preempt',
        '2',
      ];
      const {code, stdout, stderr} = await gleaner([...args, '--dir', where, '--json']);
      assert.equal(code, 0, stdout + stderr);
      const result = JSON.parse(stdout);
      assert.equal(result.ok, true);
      assert.equal(result.preemptions, 2);
      assert.equal(result.stored_once + result.rejected, result.samples);
      assert.ok(result.stored_once > result.samples * 0.9, stdout);
    });

  const mistakes: {name: string; args: string[]; exits?: number; says: RegExp}[] = [
    {
      name: 'a missing input',
      args: ['--input', 'nowhere.jsonl'],
      says: /There is no file nowhere\.jsonl/,
    },
    {name: 'a model folder without config.json', args: ['--model', tmpdir()], says: /has no config\.json/},
    {name: 'a word in place of a number', args: ['--streams', 'two'], exits: 2, says: /from 1 to 9999/},
    {name: 'zero workers', args: ['--workers', '0'], exits: 2, says: /from 1 to 9999/},
    {name: 'an unknown option', args: ['--speed'], exits: 2, says: /unknown option '--speed'/},
    {
      name: 'a folder with other files',
      args: ['--dir', fileURLToPath(new URL('.', import.meta.url))],
      says: /holds something else/,
    },
  ];
  for (const {name, args, exits = 1, says} of mistakes)
    it(`names ${name} in its error`, async () => {
      const {code, stderr} = await command.gleaner(['demo', '--dir', join(dir, 'wrong'), ...args]);
      assert.equal(code, exits);
      assert.match(stderr, says);
      assert.doesNotMatch(stderr, /\n\s+at /, 'no stack');
    });

  it('keeps the results of an earlier demo when an option is wrong', async () => {
    const cwd = mkdtempSync(join(dir, 'earlier-'));
    const kept = join(cwd, '.gleaner/demo/buckets/kept');
    lockFolder(join(cwd, '.gleaner/demo')).release();
    mkdirSync(dirname(kept), {recursive: true});
    writeFileSync(kept, 'a shard');
    writeFileSync(join(cwd, '.gleaner/demo/cloud.db'), '');
    writeFileSync(join(cwd, 'short.jsonl'), '{"text":"a"}\n');
    const server = createServer();
    await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
    const {port} = server.address() as AddressInfo;
    for (const [args, says] of [
      [['--input', 'typo.jsonl'], /There is no file typo\.jsonl/],
      [['--input', 'short.jsonl'], /1 sample cannot fill 2 streams/],
      [['--port', String(port)], /another program has the port/],
    ] as const) {
      const {code, stderr} = await command.gleaner(['demo', ...args], {cwd});
      assert.equal(code, 1);
      assert.match(stderr, says);
      assert.ok(existsSync(kept), `deleted after ${args.join(' ')}`);
    }
    server.close();
  });
});

describe('gleaner local up', () => {
  const folder = new Folder();
  afterEach(() => folder.end());
  it('names a port that is in use', async () => {
    const server = createServer();
    await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
    const {port} = server.address() as AddressInfo;
    const {code, stderr} = await command.gleaner([
      'local',
      'up',
      '--port',
      String(port),
      '--dir',
      folder.at('up'),
    ]);
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
