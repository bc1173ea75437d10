import assert from 'node:assert/strict';
import {spawn} from 'node:child_process';
import {once} from 'node:events';
import {answers} from '../../../client/json/index.ts';
import type {LocalCloud} from '../../../emulator/cloud.ts';
import {put, Scratch} from '../../support/machine/a-cloud.ts';
import {gleaner} from '../../support/machine/command.ts';
import {ROOT} from '../../support/machine/process.ts';
import {until} from '../../support/machine/until.ts';
import {aRun, at, aWorker} from '../../world/builders.ts';
import {putInCloud} from '../../world/scenes/put-documents.ts';

const A = 'tpu-us-central1-a-0';
const B = 'tpu-us-central1-a-1';
const SLICE = 'big-us-central1-a-0';
const STARTING = 'tpu-us-central1-a-4';

const line = (seconds: number, message: string, severity = 'INFO') =>
  `${JSON.stringify({time: at(seconds), severity, message})}\n`;

describe('gleaner logs @full', () => {
  const scratch = new Scratch(after);
  let cloud: LocalCloud;
  const at_port = () => ['--port', new URL(cloud.url).port];
  const logs = async (...args: string[]) => {
    const {code, stdout, stderr} = await gleaner(['logs', ...args, ...at_port()]);
    assert.equal(code, 0, stderr);
    return stdout;
  };
  const first = line(0, 'Leased') + line(2, 'Bad \u001b[31m\u202e', 'ERROR');
  before(async () => {
    cloud = await scratch.cloud();
    await putInCloud(cloud, {
      'runs/my-run': aRun(),
      'runs/bad-run': {status: 7},
      [`workers/${A}`]: aWorker({incarnation: 3, phase: 'working', work: 'my-run/007'}),
      [`workers/${B}`]: aWorker({name: B, incarnation: 1, phase: 'working', work: 'my-run/008'}),
      [`workers/${SLICE}`]: aWorker({name: SLICE, incarnation: 1, host_count: 2}),
      'workers/tpu-us-central1-a-2': {name: 7},
      [`workers/${STARTING}`]: aWorker({name: STARTING, incarnation: 9, phase: 'booting'}),
      'workers/tpu-us-central1-a-3': aWorker({name: 'tpu-us-central1-a-3', incarnation: 0}),
    });
    await put(cloud, `logs/${A}/3.log`, first);
    await put(cloud, `logs/${A}/2.log`, line(-9, 'Earlier life'));
    await put(cloud, `logs/${SLICE}/1.log`, line(0, 'First'));
    await put(cloud, `logs/${SLICE}/1.1.log`, line(1, 'Second'));
    await put(cloud, `logs/${B}/1.log`, `${line(1, 'Leased too')}no JSON\n`);
  });

  it('gleaner logs prints the logs of the TPUs of a run in the order of time', async () =>
    assert.equal(
      await logs('my-run'),
      [
        `${A} | 03:04:05 INFO Leased`,
        `${B} | 03:04:06 INFO Leased too`,
        `${B} | 03:04:06 no JSON`,
        `${A} | 03:04:07 ERROR Bad \ufffd[31m\ufffd`,
        '',
      ].join('\n'),
    ));

  it('gleaner logs prints the last lines, or those since a time', async () => {
    assert.equal(await logs(B, '--tail', '1'), '03:04:06 no JSON\n');
    assert.match(await logs('my-run', '--since', at(2)), /^tpu-us-central1-a-0 \| 03:04:07 ERROR .*\n$/);
    assert.equal(await logs(A, '--incarnation', '2'), '03:03:56 INFO Earlier life\n');
  });

  it('gleaner logs prints the logs of the hosts of a slice in the order of time', async () =>
    assert.equal(await logs(SLICE), `${SLICE}/0 | 03:04:05 INFO First\n${SLICE}/1 | 03:04:06 INFO Second\n`));

  it('gleaner logs prints an object a line with --json', async () => {
    const found = (await logs('my-run', '--json'))
      .trim()
      .split('\n')
      .map(text => answers.logs?.parse(JSON.parse(text)));
    assert.deepEqual(found[3], {
      ...{
        tpu: A,
        incarnation: 3,
        host: 0,
        time: at(2),
        severity: 'ERROR',
        message: 'Bad \u001b[31m\u202e',
        traceback: null,
      },
    });
    assert.equal(found.length, 4);
  });

  it('gleaner logs names what it cannot print', async () => {
    const none = await gleaner(['logs', 'tpu-us-central1-a-3', ...at_port()]);
    assert.deepEqual([none.code, none.stderr], [0, 'slot tpu-us-central1-a-3 has had no TPU yet\n']);
    const missing = await gleaner(['logs', A, '--incarnation', '9', ...at_port()]);
    assert.match(missing.stderr, /^no log in gs:\/\/gleaner-local\/logs\/tpu-us-central1-a-0\/9\.log/);
    const silent = await gleaner(['logs', STARTING, ...at_port()]);
    assert.match(silent.stderr, /^tpu-us-central1-a-4 is STARTING, and incarnation 9/);
    const invalid = await gleaner(['logs', 'tpu-us-central1-a-2', ...at_port()]);
    assert.deepEqual([invalid.code, invalid.stdout], [1, '']);
    assert.match(invalid.stderr, /^gleaner: Failed to read workers\/tpu-us-central1-a-2: /);
  });

  it('gleaner logs follows a log that is rewritten, to the end of the run', async () => {
    const child = spawn(process.execPath, ['cli/main.ts', 'logs', 'my-run', '-f', ...at_port()], {cwd: ROOT});
    let printed = '';
    child.stdout.on('data', text => (printed += text));
    await until('the first lines', () => printed.includes('Bad'));
    await put(cloud, `logs/${A}/3.log`, line(2, 'Bad \u001b[31m\u202e', 'ERROR') + line(3, 'Next'));
    await until('the next line', () => printed.includes('Next'));
    await putInCloud(cloud, {
      [`workers/${A}`]: aWorker({incarnation: 3, phase: 'gone'}),
      [`workers/${B}`]: aWorker({name: B, incarnation: 1, phase: 'gone'}),
      'runs/my-run': aRun({status: 'completed'}),
    });
    assert.deepEqual(await once(child, 'close'), [0, null]);
    assert.equal(printed.trim().split('\n').length, 5, printed);
  });
});
