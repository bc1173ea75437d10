import assert from 'node:assert/strict';
import {mkdirSync, writeFileSync} from 'node:fs';
import {join} from 'node:path';
import {jobAnswers} from '../../../cli/json/jobs.ts';
import type {LocalCloud} from '../../../emulator/cloud.ts';
import type {Document} from '../../../shared/ports.ts';
import {gleaner} from '../../e2e/home.ts';
import {put, Scratch} from '../../emulator/a-cloud.ts';
import {putInCloud} from '../../support/put-documents.ts';

const ended = (more: Document): Document => ({
  ...{pool: 'tpu', epoch: 1, status: 'completed', result: 'ok', attempts: [], metadata: {name: 'n'}},
  created_at: '2026-01-02T03:04:05.000Z',
  ...more,
});

describe('gleaner jobs @full', () => {
  const scratch = new Scratch();
  let cloud: LocalCloud;
  const at = () => ['--port', new URL(cloud.url).port];
  before(async () => {
    cloud = await scratch.cloud();
    await putInCloud(cloud, {
      'jobs/good': ended({}),
      'jobs/bad': ended({
        ...{status: 'failed', cause: 'memory', error: 'it took\nall memory\u001b[31m', result: null},
        created_at: '2026-01-03T03:04:05.000Z',
      }),
      'jobs/raw': {code: 'x', status: 'pending'},
    });
    const bytes = Buffer.from('one\nzwölf\n  50 %\r100 %\nlast');
    await put(cloud, 'jobs/good/epoch_1/output/000001.txt', bytes.toString());
  });
  after(() => scratch.end());

  it('lists the newest jobs first, and only those that were asked for', async () => {
    const ids = async (...args: string[]) => {
      const {stdout} = await gleaner(['jobs', 'list', '--json', ...args, ...at()]);
      return jobAnswers['jobs list'].parse(JSON.parse(stdout)).map(({id}) => id);
    };
    assert.deepEqual(await ids(), ['bad', 'good']);
    assert.deepEqual(await ids('--limit', '1'), ['bad']);
    assert.deepEqual(await ids('--status', 'completed'), ['good']);
  });

  it('shows a job, also an unchecked one, without its control characters', async () => {
    const {stdout} = await gleaner(['jobs', 'show', 'bad', ...at()]);
    assert.match(stdout, /^bad {2}failed \(memory\): all memory\ufffd\[31m\n/);
    assert.match((await gleaner(['jobs', 'show', 'raw', ...at()])).stdout, /^raw {2}pending\n/);
  });

  it('follows to the end, with exit code 0 for a completed job alone', async () => {
    const good = await gleaner(['jobs', 'follow', 'good', ...at()]);
    assert.deepEqual([good.code, good.stdout], [0, 'one\nzwölf\n100 %\nlast\n']);
    assert.equal((await gleaner(['jobs', 'follow', 'bad', ...at()])).code, 1);
    const none = await gleaner(['jobs', 'follow', 'none', ...at()]);
    assert.deepEqual([none.code, none.stderr.startsWith('gleaner: There is no job "none"')], [1, true]);
  });

  it('prints the gcloud commands of a submit without publishing', async () => {
    const folder = join(scratch.dir(), 'code');
    mkdirSync(folder);
    writeFileSync(join(folder, 'a.py'), 'print(1)\n');
    const args = [
      'jobs',
      'submit',
      '--bundle',
      folder,
      '--dry-run',
      '--json',
      ...at(),
      '--command',
      '--',
      'python',
      '-c',
      '1',
    ];
    const runs = await Promise.all([gleaner(args), gleaner(args)]);
    const [first, second] = runs.map(({stdout}) => JSON.parse(stdout).commands as string[]);
    assert.equal(first?.[0], second?.[0]);
    assert.match(first?.[0] ?? '', /gs:\/\/gleaner-local\/code\/[0-9a-f]{64}\.tar\.gz$/);
    assert.match(
      first?.[1] ?? '',
      /^gcloud pubsub topics publish control --message='\{"action":"submit".*"command":\["python","-c","1"\]/,
    );
  });

  it('refuses bad input with one line', async () => {
    const dir = scratch.dir();
    const file = (name: string, content: string) => {
      writeFileSync(join(dir, name), content);
      return join(dir, name);
    };
    const refusals: [number, RegExp, string[]][] = [
      [1, /There is no text in /, [file('empty.py', ' \n')]],
      [1, /is a folder/, [dir]],
      [1, /ENOENT/, [join(dir, 'none.py')]],
      [1, /--bundle FOLDER --command$/, [file('long.py', 'x'.repeat(180_001))]],
      [1, /is not JSON/, [file('bad.json', '{')]],
      [1, /not valid/, [file('odd.json', '{"code":"x","timeout":"5m"}')]],
      [2, /There is no command: give it after --/, ['--command']],
      [2, /give one of FILE, --test and --command/, [file('a.py', 'x'), '--command', '--', 'x']],
      [2, /There is no repository of the job: add --repo/, [file('b.py', 'x'), '--branch', 'main']],
      [2, /seconds above 0/, ['a.py', '--timeout', '0']],
      [2, /seconds above 0/, ['a.py', '--timeout', '-1']],
      [2, /seconds above 0/, ['a.py', '--timeout', '5m']],
    ];
    for (const [code, says, args] of refusals) {
      const [first, ...others] = args;
      const ended = await gleaner(['jobs', 'submit', first ?? '', ...at(), ...others]);
      assert.equal(ended.code, code, ended.stderr);
      assert.match(ended.stderr.split('\n')[0] ?? '', says);
    }
  });
});
