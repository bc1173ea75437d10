import assert from 'node:assert/strict';
import {spawnSync} from 'node:child_process';
import {existsSync, mkdirSync} from 'node:fs';
import {createServer} from 'node:net';
import {join} from 'node:path';
import {lockFolder} from '../../../emulator/state/database.ts';
import * as command from '../../support/machine/command.ts';
import {Folder} from '../../support/machine/folder.ts';
import {gleaner} from '../../support/machine/home.ts';
import {listen, portOf} from '../../support/machine/listen.ts';

const KEPT = '.gleaner/demo/kept';

/** Writes results of an earlier demo into the default folder below `place`. */
function leaveDemo(folder: Folder, place = '.'): void {
  lockFolder(folder.at(join(place, '.gleaner/demo'))).release();
  folder.put(join(place, '.gleaner/demo/cloud.db'), '');
  folder.put(join(place, KEPT), 'a shard');
}

describe('gleaner demo @full', () => {
  const folder = new Folder(afterEach);
  const run = (args: string[], env = {}) => gleaner(args, {cwd: folder.path, env});
  beforeEach(() => leaveDemo(folder));

  const mistakes: [name: string, args: string[], says: RegExp, exits?: number][] = [
    ['a missing input', ['--input', 'typo.jsonl'], /^gleaner: There is no file typo\.jsonl/],
    ['too few samples', ['--input', 'short.jsonl'], /^gleaner: 1 sample cannot fill 2 streams/],
    ['a model folder without config.json', ['--model', '.'], /has no config\.json/],
    ['config.json that is not JSON', ['--model', 'bad'], /^gleaner: bad\/config\.json is not JSON: .*\n$/],
    [
      'config.json that is null',
      ['--model', 'null'],
      /^gleaner: null\/config\.json is not valid: expected an object, got null\n$/,
    ],
    [
      'config.json with a word in place of a number',
      ['--model', 'word'],
      /^gleaner: word\/config\.json is not valid: hidden_size: expected a number/,
    ],
    ['a word in place of a number', ['--streams', 'two'], /from 1 to 9999/, 2],
    ['zero workers', ['--workers', '0'], /from 1 to 9999/, 2],
    ['a folder with other files', ['--dir', '.'], /holds something else/],
  ];
  for (const [name, args, says, exits = 1] of mistakes)
    it(`gleaner demo names ${name}, and keeps the results of an earlier demo`, async () => {
      folder.put('short.jsonl', '{"text":"a"}\n');
      folder.put('bad/config.json', '{bad');
      folder.put('null/config.json', 'null');
      folder.put('word/config.json', '{"hidden_size": "many"}');
      const {code, stderr} = await command.gleaner(['demo', ...args], {cwd: folder.path});
      assert.equal(code, exits);
      assert.match(stderr, says);
      assert.doesNotMatch(stderr, /\n\s+at /, 'no stack');
      assert.ok(existsSync(folder.at(KEPT)));
    });

  it('gleaner demo keeps the results of an earlier demo when another program has the port', async () => {
    const server = createServer();
    await listen(server);
    const port = portOf(server);
    const {code, stderr} = await command.gleaner(['demo', '--port', String(port)], {cwd: folder.path});
    server.close();
    assert.equal(code, 1);
    assert.match(stderr, /another program has the port/);
    assert.ok(existsSync(folder.at(KEPT)));
  });

  it('gleaner demo keeps the results of an earlier demo when the Python environment fails, and prints plain lines', async () => {
    const {code, stdout, stderr} = await run(['demo'], {XDG_CACHE_HOME: '/dev/null'});
    assert.equal(code, 1);
    assert.match(stderr, /^gleaner: Failed to prepare Python \(exit 1\): .*\/dev\/null.*\n$/);
    assert.ok(existsSync(folder.at(KEPT)));
    assert.match(stdout, /^Preparing the Python environment .* … 0 s$/m);
    assert.match(stdout, /^mkdir: .*[^0-9s]$/m);
  });

  it('gleaner demo keeps the results of an earlier demo on a full disk', async function () {
    const disk = folder.at('disk');
    mkdirSync(disk);
    if (spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=24m', 'tmpfs', disk]).status !== 0) {
      console.log('  skipped: only root can mount a small disk');
      this.skip();
    }
    try {
      leaveDemo(folder, 'disk');
      const {code, stderr} = await command.gleaner(['demo'], {cwd: disk});
      assert.equal(code, 1);
      assert.match(stderr, /^gleaner: The folder .* is full \(\d\d MB free, a worker needs 700\)/);
      assert.ok(existsSync(join(disk, KEPT)));
    } finally {
      spawnSync('umount', [disk]);
    }
  });

  for (const file of ['some-file', '/dev/null'])
    it(`gleaner demo answers --dir ${file}, which is not a folder, with one line`, async () => {
      folder.put('some-file', '');
      const {code, stderr} = await command.gleaner(['demo', '--dir', file], {cwd: folder.path});
      assert.equal(code, 1);
      assert.match(stderr, /^gleaner: Failed to read .*: ENOTDIR: .*; choose a folder with --dir\n$/);
    });
});
