import assert from 'node:assert/strict';
import {spawn} from 'node:child_process';
import {existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync} from 'node:fs';
import {join} from 'node:path';
import {text} from 'node:stream/consumers';
import {jobAnswers} from '../../../client/json/jobs.ts';
import type {LocalCloud} from '../../../emulator/cloud.ts';
import type {Document} from '../../../shared/ports/ports.ts';
import {put, Scratch} from '../../support/machine/a-cloud.ts';
import {gleaner} from '../../support/machine/command.ts';
import {putInCloud} from '../../world/scenes/put-documents.ts';

const ended = (more: Document): Document => ({
  ...{pool: 'tpu', epoch: 1, status: 'completed', result: 'ok', attempts: [], metadata: {name: 'n'}},
  created_at: '2026-01-02T03:04:05.000Z',
  ...more,
});

/** Title of a window, bell, C1 control, bidi override, line separator. */
const HOSTILE = '\u001b]0;title\u0007 \u009b2J \u202e \u2028';

describe('gleaner jobs @full', () => {
  const scratch = new Scratch(after);
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
      'jobs/whole': ended({
        ...{result: `first\n${'x'.repeat(300)}`, spent_usd: 0.00123, metadata: {}},
        ...{started_at: '2026-01-01T03:04:05.000Z', completed_at: '2026-01-01T03:04:17.000Z'},
        ...{artifacts_path: 'gs://gleaner-local/jobs/whole/epoch_1/artifacts/'},
        attempts: [{epoch: 1, worker: 'tpu-us-central1-a-0', outcome: 'completed'}],
        created_at: '2026-01-01T03:04:05.000Z',
      }),
      'jobs/slice': ended({
        ...{status: 'failed', cause: 'exit', error: 'host 1 of 3: ValueError: x', result: null},
        ends: {
          0: {outcome: 'failed', cause: 'peer', error: 'lost host 1', exit_code: 134},
          1: {outcome: 'failed', cause: 'exit', error: 'ValueError: x', exit_code: 1},
          2: {outcome: 'failed', cause: 'peer', error: 'lost host 1', exit_code: 134},
        },
        created_at: '2026-01-01T01:04:05.000Z',
      }),
      'jobs/escapes': ended({
        ...{result: null, result_path: 'gs://gleaner-local/jobs/escapes/epoch_1/result.txt'},
        ...{metadata: {note: HOSTILE}, cause: HOSTILE, error: HOSTILE},
        created_at: '2026-01-01T00:04:05.000Z',
      }),
      'jobs/escaped': ended({result: HOSTILE, created_at: '2026-01-01T00:03:05.000Z'}),
      'jobs/long': ended({
        ...{result: null, result_path: 'gs://gleaner-local/jobs/long/epoch_1/result.txt'},
        metadata: {name: 'a long one'},
        created_at: '2026-01-01T02:04:05.000Z',
      }),
    });
    await put(cloud, 'jobs/long/epoch_1/result.txt', 'a long result');
    await put(cloud, 'jobs/escapes/epoch_1/result.txt', `${HOSTILE}\n${'é'.repeat(200_000)}\n${HOSTILE}`);
    await put(cloud, 'jobs/escapes/epoch_1/output/000001.txt', `${HOSTILE}\n`);
    for (const [host, text] of ['from the first\n', 'before\nValueError: x\n', 'lost\n'].entries()) {
      await put(cloud, `jobs/slice/epoch_1/host_${host}/output/000001.txt`, text);
      await put(cloud, `jobs/slice/epoch_1/host_${host}/artifacts/a.txt`, `${host}`);
    }
    await put(cloud, 'jobs/whole/epoch_1/artifacts/a.txt', 'one');
    await put(cloud, 'jobs/whole/epoch_1/artifacts/sub/b.txt', 'two');
    await put(cloud, 'jobs/good/epoch_1/artifacts/../../outside', 'hostile');
    const bytes = Buffer.from('one\nzwölf\n  50 %\r100 %\nlast');
    await put(cloud, 'jobs/good/epoch_1/output/000001.txt', bytes.toString());
  });

  it('gleaner jobs lists the newest jobs first, and only those that were asked for', async () => {
    const ids = async (...args: string[]) => {
      const {stdout} = await gleaner(['jobs', 'list', '--json', ...args, ...at()]);
      return jobAnswers['jobs list'].parse(JSON.parse(stdout)).map(({id}) => id);
    };
    assert.deepEqual(await ids(), ['bad', 'good', 'whole', 'long', 'slice', 'escapes', 'escaped']);
    assert.deepEqual(await ids('--limit', '1'), ['bad']);
    assert.deepEqual(await ids('--status', 'failed'), ['bad', 'slice']);
    assert.deepEqual(await ids('--name', 'n', '--status', 'failed'), ['bad', 'slice']);
    assert.deepEqual(await ids('--name', 'a long one'), ['long']);
  });

  it('gleaner jobs takes the name of one job for its id, and refuses a name of several with their ids', async () => {
    const named = (...words: string[]) => gleaner(['jobs', ...words, ...at()]);
    assert.equal((await named('get', 'a long one')).stdout, 'a long result');
    assert.match((await named('show', 'a long one')).stdout, /^long {2}completed/);
    for (const action of ['cancel', 'retry'])
      assert.match((await named(action, 'a long one', '--dry-run')).stdout, /"job":"long"/);
    assert.match((await gleaner(['why', 'a long one', ...at()])).stdout, /^long/m);
    const {code, stderr} = await named('follow', 'n');
    assert.match(
      stderr,
      /Several jobs have the name "n": .* bad \(failed\), good \(completed\), slice \(failed\)/,
    );
    assert.equal(code, 1);
  });

  it('gleaner jobs submits a file with the words after -- and a time with a unit', async () => {
    const folder = join(scratch.dir(), 'trained');
    mkdirSync(folder);
    writeFileSync(join(folder, 'model.py'), '');
    const file = join(folder, 'train.py');
    writeFileSync(file, 'import os, model as m\nfrom os.path import join\n');
    const words = ['jobs', 'submit', file, ...at(), '--timeout', '1.5h', '--dry-run'];
    const {stdout} = await gleaner([...words, '--', '--steps', '3']);
    assert.match(stdout, /"args":\["--steps","3"\],"timeout":5400,/);
    const wrong = await gleaner([...words, '--steps', '3']);
    assert.match(
      wrong.stderr,
      /unknown option '--steps'\n\(options of the code or the command go after --, such as /,
    );
    const alone = await gleaner(['jobs', 'submit', file, ...at()]);
    assert.match(alone.stderr, new RegExp(`imports model from its own folder, .*: add --bundle ${folder};`));
  });

  it('gleaner jobs lists state, pool, worker, duration and cost under a header', async () => {
    const {stdout} = await gleaner(['jobs', 'list', ...at()]);
    const [header = '', ...rows] = stdout.trimEnd().split('\n');
    assert.match(header, /^JOB +STATE +POOL +WORKER +CREATED +DURATION +COST +NAME +REASON$/);
    assert.match(
      rows[2] ?? '',
      /^whole +completed +tpu +tpu-us-central1-a-0 +2026-01-01 .* 12 s +\$0\.0012$/,
    );
  });

  it('gleaner jobs ends a follow with the result, the artifacts, the duration and the cost', async () => {
    const {stderr} = await gleaner(['jobs', 'follow', 'whole', ...at()]);
    const [, port = ''] = at();
    assert.deepEqual(stderr.trimEnd().split('\n'), [
      'whole: completed',
      `  result     first …: gleaner jobs get whole --port ${port}`,
      `  artifacts  gs://gleaner-local/jobs/whole/epoch_1/artifacts/: gleaner jobs cp whole FOLDER --port ${port}`,
      '  duration   12 s',
      '  cost       $0.0012',
    ]);
  });

  it('gleaner jobs gets the whole result, from the document or from the bucket, or says why there is none', async () => {
    const {stdout, code} = await gleaner(['jobs', 'get', 'whole', ...at()]);
    assert.deepEqual([code, stdout], [0, `first\n${'x'.repeat(300)}\n`]);
    assert.equal((await gleaner(['jobs', 'get', 'long', ...at()])).stdout, 'a long result');
    const asJson = async (id: string) => {
      const got = await gleaner(['jobs', 'get', id, '--json', ...at()]);
      return jobAnswers['jobs get'].parse(JSON.parse(got.stdout));
    };
    assert.equal((await asJson('whole')).result, `first\n${'x'.repeat(300)}`);
    assert.match(String((await asJson('long')).result_path), /^gs:\/\//);
    const failed = await gleaner(['jobs', 'get', 'bad', ...at()]);
    assert.match(failed.stderr, /Job bad has no result: it is failed \(memory\)/);
    assert.equal(failed.code, 1);
  });

  for (const words of [
    'get escapes',
    'get escaped',
    'show escapes',
    'follow escapes',
    'logs escapes',
    'list',
  ])
    it(`gleaner jobs shows a terminal no control character of a job: jobs ${words}`, async () => {
      const pty = 'import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))';
      const command = ['node', 'cli/gleaner.mjs', 'jobs', ...words.split(' '), ...at()];
      const child = spawn('python3', ['-c', pty, ...command], {stdio: ['ignore', 'pipe', 'inherit']});
      const shown = await text(child.stdout);
      assert.match(shown, words === 'list' ? /escaped/ : /title/);
      assert.doesNotMatch(
        shown.replaceAll(/\p{Cc}\[[\d;]*[mK]/gu, ''),
        /[\p{Cf}\u2028\u2029]|(?![\r\n])\p{Cc}/u,
      );
    });

  it('gleaner jobs copies artifacts once, and never to a place outside of the folder', async () => {
    const folder = join(scratch.dir(), 'artifacts');
    const copied = async () => {
      const {stdout} = await gleaner(['jobs', 'cp', 'whole', folder, '--json', ...at()]);
      return jobAnswers['jobs cp'].parse(JSON.parse(stdout));
    };
    assert.deepEqual(await copied(), {folder, attempt: 1, files: 2, written: 2, bytes: 6, left_out: []});
    assert.equal(readFileSync(join(folder, 'sub/b.txt'), 'utf8'), 'two');
    assert.equal((await copied()).written, 0);
    const hostile = await gleaner(['jobs', 'cp', 'good', join(folder, 'x/y'), ...at()]);
    assert.match(hostile.stderr, /"\.\.\/\.\.\/outside" is left out: the name is not a path/);
    assert.ok(!existsSync(join(folder, 'outside')));
    const none = await gleaner(['jobs', 'cp', 'bad', folder, ...at()]);
    assert.match(none.stderr, /There are no artifacts of attempt 1 of job bad, which is failed/);
  });

  it('gleaner jobs leaves out artifacts whose names this machine refuses, names them, and copies the others', async () => {
    const folder = join(scratch.dir(), 'names');
    const [longest, longer] = [`${'é'.repeat(127)}x`, 'y'.repeat(256)];
    const names = ['a', 'a/b', 'z.txt', longest, longer, '../up', 'c//d'];
    for (const name of names) await put(cloud, `jobs/raw/epoch_1/artifacts/${name}`, name);
    for (const written of [3, 0]) {
      const {code, stdout, stderr} = await gleaner([
        ...['jobs', 'cp', 'raw', folder, '--attempt', '1', '--json', ...at()],
      ]);
      const {left_out, ...copied} = jobAnswers['jobs cp'].parse(JSON.parse(stdout));
      assert.deepEqual([code, copied.files, copied.written], [1, 3, written], stderr);
      const out = left_out.map(({name}) => name);
      assert.equal(names.filter(name => !out.includes(name)).length, 3);
      assert.ok(out.includes('a') !== out.includes('a/b'), out.join());
      for (const name of out) assert.ok(stderr.includes(`${JSON.stringify(name)} is left out: `), name);
      assert.doesNotMatch(stderr, /^ {4}at /m);
    }
    for (const name of ['z.txt', longest]) assert.equal(readFileSync(join(folder, name), 'utf8'), name);
    assert.deepEqual(
      readdirSync(folder).filter(name => name.endsWith('.part')),
      [],
    );
  });

  it('gleaner jobs refuses an update without a change, and removes the source of a pool', async () => {
    const empty = await gleaner(['update', 'tpu', ...at()]);
    assert.equal(empty.code, 2);
    assert.match(empty.stderr, /There is nothing to update: give --bundle, --branch/);
    const removed = await gleaner(['update', 'tpu', '--repo', 'none', '--dry-run', ...at()]);
    assert.match(removed.stdout, /\{"action":"update","pool":"tpu","source":null\}/);
  });

  it('gleaner jobs shows a job, also an unchecked one, without its control characters', async () => {
    const {stdout} = await gleaner(['jobs', 'show', 'bad', ...at()]);
    assert.match(stdout, /^bad {2}failed \(memory\): all memory\ufffd\[31m\n/);
    assert.match((await gleaner(['jobs', 'show', 'raw', ...at()])).stdout, /^raw {2}pending\n/);
  });

  it('gleaner jobs follows to the end, with exit code 0 for a completed job alone', async () => {
    const good = await gleaner(['jobs', 'follow', 'good', ...at()]);
    assert.deepEqual([good.code, good.stdout], [0, 'one\nzwölf\n100 %\nlast\n']);
    assert.equal((await gleaner(['jobs', 'follow', 'bad', ...at()])).code, 1);
    const none = await gleaner(['jobs', 'follow', 'none', ...at()]);
    assert.deepEqual([none.code, none.stderr.startsWith('gleaner: There is no job "none"')], [1, true]);
  });

  it('gleaner jobs prints the output of host 0 of a slice, and what failed on the others', async () => {
    const {stdout, stderr} = await gleaner(['jobs', 'follow', 'slice', ...at()]);
    assert.equal(stdout, 'from the first\n');
    assert.deepEqual(stderr.split('\n').slice(0, 5), [
      'slice: host 1 failed (exit): ValueError: x',
      'host 1 | before',
      'host 1 | ValueError: x',
      'slice: host 2 failed (peer): lost host 1',
      'slice: failed (exit): host 1 of 3: ValueError: x',
    ]);
    const second = await gleaner(['jobs', 'logs', 'slice', '--host', '2', ...at()]);
    assert.equal(second.stdout, 'lost\n');
    const none = await gleaner(['jobs', 'logs', 'good', '--host', '2', ...at()]);
    assert.match(none.stderr, /attempt 1 of job good has written no output on host 2/);
    const ninth = await gleaner(['jobs', 'logs', 'slice', '--host', '9', ...at()]);
    assert.match(ninth.stderr, /no output on host 9; hosts with output: 0, 1, 2\n/);
    const folder = join(scratch.dir(), 'hosts');
    assert.match((await gleaner(['jobs', 'cp', 'slice', folder, ...at()])).stdout, /^3 files/);
    assert.equal(readFileSync(join(folder, 'host_2/a.txt'), 'utf8'), '2');
  });

  it('gleaner jobs prints the gcloud commands of a submit without publishing', async () => {
    const folder = join(scratch.dir(), 'code');
    mkdirSync(folder);
    writeFileSync(join(folder, 'a.py'), 'print(1)\n');
    const args = ['jobs', 'submit', '--bundle', folder, '--dry-run', '--json', ...at()];
    const submit = () => gleaner([...args, '--command', '--', 'python', '-c', '1']);
    const runs = await Promise.all([submit(), submit()]);
    const [first, second] = runs.map(({stdout}) => JSON.parse(stdout).commands as string[]);
    assert.equal(first?.[0], second?.[0]);
    assert.match(first?.[0] ?? '', /gs:\/\/gleaner-local\/code\/[0-9a-f]{64}\.tar\.gz$/);
    assert.match(
      first?.[1] ?? '',
      /^gcloud pubsub topics publish control --message='\{"action":"submit".*"command":\["python","-c","1"\]/,
    );
  });

  it('gleaner jobs refuses bad input with one line', async () => {
    const dir = scratch.dir();
    const file = (name: string, content: string) => {
      writeFileSync(join(dir, name), content);
      return join(dir, name);
    };
    const refusals: [number, RegExp, string[]][] = [
      [1, / is empty/, [file('empty.py', ' \n')]],
      [1, /is a folder/, [dir]],
      [1, /ENOENT/, [join(dir, 'none.py')]],
      [1, /--bundle FOLDER --command$/, [file('long.py', 'x'.repeat(180_001))]],
      [1, /is not JSON/, [file('bad.json', '{')]],
      [1, /not valid/, [file('odd.json', '{"code":"x","timeout":"5m"}')]],
      [2, /--command needs its words after --/, ['--command']],
      [2, /Give only one of FILE, --test and --command/, [file('a.py', 'x'), '--command', '--', 'x']],
      [2, /leave out --repo none/, [file('c.py', 'x'), '--repo', 'none']],
      [2, /--branch, --pr and --commit need --repo/, [file('b.py', 'x'), '--branch', 'main']],
      [1, /the deadline 2020.* is past/, [file('d.py', 'x'), '--deadline', '2020-01-01T00:00:00Z']],
      [2, /seconds above 0/, ['a.py', '--timeout', '0']],
      [2, /seconds above 0/, ['a.py', '--timeout', '-1']],
      [2, /seconds above 0/, ['a.py', '--timeout', '5 m']],
      [2, /up to 604800/, ['a.py', '--timeout', '8d']],
      [2, /--test takes no words after --/, ['--test', '--', 'x']],
    ];
    for (const [code, says, args] of refusals) {
      const [first, ...others] = args;
      const ended = await gleaner(['jobs', 'submit', first ?? '', ...at(), ...others]);
      assert.equal(ended.code, code, ended.stderr);
      assert.match(ended.stderr.replace(/^cloud: .*\n/, '').split('\n')[0] ?? '', says);
    }
  });
});
