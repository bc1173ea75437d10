import assert from 'node:assert/strict';
import {existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync} from 'node:fs';
import {createServer} from 'node:net';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {fileURLToPath} from 'node:url';
import {gzipSync} from 'node:zlib';
import {writeStreams} from '../../cli/demo/input.ts';
import {E2E_MS, gleaner, processes} from './home.ts';

const DATA = fileURLToPath(new URL('../../../shared/data/', import.meta.url));

describe('gleaner demo', function () {
  this.timeout(E2E_MS);
  let dir: string;
  before(() => {
    dir = mkdtempSync(join(tmpdir(), 'gleaner-demo-'));
  });
  after(() => rmSync(dir, {recursive: true, force: true}));

  it('ends verified after a preemption, with the shards in its folder and no process left', async () => {
    const {code, stdout, stderr} = await gleaner(['demo', '--dir', join(dir, 'plain')]);
    assert.equal(code, 0, stdout + stderr);
    assert.match(stdout, /^verified: demo$/m);
    assert.match(stdout, /1 preemption survived/);
    assert.match(stdout, /was preempted/);
    const shards = readdirSync(join(dir, 'plain/buckets/gleaner-local/activations/demo/tpu_0'));
    assert.ok(shards.filter(name => name.endsWith('.safetensors')).length > 2, shards.join());
    assert.deepEqual(
      processes().filter(({args}) => args.includes(dir)),
      [],
    );
    const again = await gleaner(['verify', 'demo', '--dir', join(dir, 'plain'), '--json']);
    assert.equal(again.code, 0, again.stderr);
    assert.equal(JSON.parse(again.stdout).ok, true);
  });

  for (const file of ['arc-agi-training.jsonl', 'gsm8k-test.jsonl'])
    it(`takes real input: ${file} in 3 streams through 2 preemptions`, async function () {
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

  it('splits its input into streams without changing, repeating or losing a line, also of .gz and with marks', async () => {
    const lines = Array.from({length: 23}, (_, n) =>
      Buffer.from(`{"text":"line ${n}"}${n % 3 ? '' : '\r'}\n`),
    );
    lines[5] = Buffer.from('{"text":"\xff\xfe"}\n', 'latin1');
    const [plain, packed] = [join(dir, 'plain.jsonl'), join(dir, 'packed.jsonl.gz')];
    writeFileSync(plain, Buffer.concat([Buffer.from('\ufeff'), ...lines.slice(0, 11)]));
    writeFileSync(
      packed,
      gzipSync(Buffer.concat([Buffer.from('\ufeff'), ...lines.slice(11)]).subarray(0, -1)),
    );
    const streams = await writeStreams(join(dir, 'split'), [plain, packed], 4);
    assert.deepEqual(
      streams.map(stream => stream.records),
      [6, 6, 6, 5],
    );
    const written = Buffer.concat(streams.map(stream => readFileSync(stream.file)));
    assert.deepEqual(written, Buffer.concat(lines));
  });

  const mistakes: {name: string; args: string[]; says: RegExp}[] = [
    {
      name: 'an input that is not there',
      args: ['--input', 'nowhere.jsonl'],
      says: /nowhere\.jsonl does not exist/,
    },
    {name: 'a model folder without config.json', args: ['--model', tmpdir()], says: /has no config\.json/},
    {name: 'a number that is none', args: ['--streams', 'two'], says: /whole number/},
    {name: 'an unknown option', args: ['--speed'], says: /unknown option '--speed'/},
    {
      name: 'a folder that holds something else',
      args: ['--dir', fileURLToPath(new URL('.', import.meta.url))],
      says: /holds something else/,
    },
  ];
  for (const {name, args, says} of mistakes)
    it(`says what is wrong with ${name}`, async () => {
      const {code, stderr} = await gleaner(['demo', ...args]);
      assert.equal(code, 1);
      assert.match(stderr, says);
      assert.doesNotMatch(stderr, /\n\s+at /, 'no stack');
    });

  it('says so when the port is in use', async () => {
    const server = createServer();
    await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
    const address = server.address();
    const port = typeof address === 'object' && address ? String(address.port) : '';
    const {code, stderr} = await gleaner(['local', 'up', '--port', port, '--dir', join(dir, 'port')]);
    server.close();
    assert.equal(code, 1);
    assert.match(stderr, new RegExp(`${port}: another program has the port`));
  });
});
