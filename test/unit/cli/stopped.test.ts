import assert from 'node:assert/strict';
import {readdirSync} from 'node:fs';
import {answers} from '../../../client/json/index.ts';
import {runRecords} from '../../../shared/control-plane/documents/documents.ts';
import {openStore} from '../../../shared/open-store.ts';
import {Scratch} from '../../support/machine/a-cloud.ts';
import {gleaner} from '../../support/machine/command.ts';
import {Folder} from '../../support/machine/folder.ts';
import {aRun} from '../../world/builders.ts';

describe('A stopped local cloud', () => {
  const scratch = new Scratch(after);
  const folder = new Folder(after);
  let dir: string;
  before(async () => {
    const cloud = await scratch.cloud();
    dir = cloud.dir;
    const store = openStore({project: cloud.project, store: `sqlite:${cloud.store_file}`});
    await store.transaction(async tx => {
      runRecords.set(tx, aRun({run: 'at-work', streams_in_progress: 2}));
      runRecords.set(tx, aRun({run: 'done', status: 'completed', streams_completed: 2}));
    });
    await store.close();
    await cloud.close();
    folder.put('streams/stream_000.jsonl', '{"text": "a"}\n');
    folder.put('job.py', 'print(1)\n');
  });
  const objects = () => readdirSync(`${dir}/buckets`, {recursive: true}).map(String).sort();

  const changes = [
    'run start my-run --streams STREAMS --no-check',
    'streams upload STREAMS --run my-run --no-check',
    'jobs submit JOB --no-check',
    'run pause at-work',
    'run stop at-work --yes',
    'pool create big --accelerator v5litepod-1 --zones us-central1-a --workers-per-zone 1',
    'tpus delete --all --yes',
    'exec tpu -- true',
    'update tpu --repo none --no-check',
    'prices update',
    'rebuild',
    'tick',
    'verify done --reference 1',
    'local fault stockout all',
  ];
  for (const words of changes)
    it(`a stopped local cloud refuses, before anything is written: ${words}`, async () => {
      const before = objects();
      const paths = {STREAMS: folder.at('streams'), JOB: folder.at('job.py')};
      const args = words.split(' ').map(word => paths[word as keyof typeof paths] ?? word);
      const end = args.includes('--') ? args.indexOf('--') : args.length;
      const {code, stderr} = await gleaner(args.toSpliced(end, 0, '--dir', dir));
      assert.equal(code, 1);
      assert.match(stderr, /the local cloud in .* is stopped: start it with `gleaner local up --dir .*`/);
      assert.deepEqual(objects(), before);
    });

  const screens: {words: string; code: number; says: RegExp}[] = [
    {words: 'status', code: 0, says: /alert: the local cloud in .* is stopped/},
    {words: 'status at-work', code: 0, says: /the local cloud in .* is stopped/},
    {words: 'tpus list', code: 0, says: /the local cloud in .* is stopped/},
    {
      words: 'why at-work',
      code: 0,
      says: /at-work is active: the local cloud in .* is stopped\n {2}next step {3}start it with/,
    },
    {words: 'why done', code: 0, says: /done is completed: nothing waits/},
    {
      words: 'run watch at-work',
      code: 1,
      says: /run at-work is not over, and the local cloud in .* is stopped/,
    },
    {words: 'run watch done', code: 0, says: /completed/},
  ];
  for (const {words, code, says} of screens)
    it(`a stopped local cloud is called so by its screens: ${words}`, async () => {
      const ended = await gleaner([...words.split(' '), '--dir', dir]);
      assert.match(ended.stdout + ended.stderr, says);
      assert.equal(ended.code, code);
    });
});

describe('A command that changes a local cloud', () => {
  const scratch = new Scratch(after);
  const folder = new Folder(after);

  it('a command that changes a local cloud names it first, and in its answer', async () => {
    const {dir} = await scratch.cloud();
    folder.put('streams/stream_000.jsonl', '{"text": "a"}\n');
    const args = ['streams', 'upload', folder.at('streams'), '--run', 'my-run', '--no-check'];
    const {stdout, stderr} = await gleaner([...args, '--dir', dir, '--json']);
    assert.equal(stderr.split('\n')[0], `cloud: local, ${dir}`);
    const answer = JSON.parse(stdout);
    assert.equal(answers['streams upload']?.parse(answer) && answer.cloud, `local, ${dir}`);
    const fault = await gleaner(['local', 'fault', 'stockout', 'us-central1-a', '--dir', dir]);
    assert.equal(fault.stderr, `cloud: local, ${dir}\n`);
    const dry = await gleaner(['run', 'pause', 'x', '--dry-run', '--dir', dir]);
    assert.equal(dry.stderr, '');
  });
});
