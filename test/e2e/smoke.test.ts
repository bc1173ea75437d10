import assert from 'node:assert/strict';
import {spawn} from 'node:child_process';
import {once} from 'node:events';
import {mkdirSync, readFileSync, writeFileSync} from 'node:fs';
import {delimiter, join} from 'node:path';
import {urlWithToken} from '../../emulator/http/guard.ts';
import {needEmulators} from '../contract/emulators.ts';
import {FAST, gleaner, TestHome, texts} from '../support/machine/home.ts';
import {GLEANER} from '../support/machine/process.ts';

type Answer = {ok: boolean; spent_usd: number; steps: {step: string; status: string; saw: string}[]};

describe("gleaner smoke on Google's emulators of Firestore and Pub/Sub @long", () => {
  let home: TestHome;
  let file: string;
  before(async function () {
    needEmulators(this);
    home = await TestHome.start(1, FAST, ['--emulators']);
    file = join(home.dir, 'smoke.json');
  });
  after(() => home?.remove());

  const smoke = async (...args: string[]): Promise<Answer & {code: number; stderr: string}> => {
    const given = ['smoke', '--dir', home.dir, '--json', '--state-file', file, ...args];
    const {code, stdout, stderr} = await gleaner(given);
    return {...(JSON.parse(stdout) as Answer), code, stderr};
  };

  it('stops before it spends more than its ceiling', async () => {
    const {code, steps} = await smoke('--budget-usd', '0.000000001');
    assert.equal(code, 1);
    assert.equal(steps.at(-1)?.status, 'failed', JSON.stringify(steps));
  });

  it('ends at Ctrl-C in the middle of a step, and names the run that works on', async () => {
    const given = ['smoke', '--dir', home.dir, '--state-file', file];
    const child = spawn(process.execPath, [GLEANER, ...given]);
    let said = '';
    child.stderr.on('data', chunk => {
      const before = said;
      said += chunk;
      if (!before.includes('ten samples: passed') && said.includes('ten samples: passed'))
        void home
          .until('a run of the lost node', openRuns, runs => runs.length > 0)
          .then(() => child.kill('SIGINT'));
    });
    const [code] = await once(child, 'close');
    assert.equal(code, 130, said);
    const [run] = await lostRuns();
    assert.match(
      said,
      new RegExp(`Interrupted: the same command continues .*\\. ${run} still runs within its budget`),
    );
  });

  const runsOf = (): Record<string, string> => JSON.parse(readFileSync(file, 'utf8')).runs;
  const lostRuns = async () =>
    Object.entries(runsOf()).flatMap(([purpose, run]) => (purpose.startsWith('lost-') ? run : []));

  const openRuns = async () => {
    const views = await Promise.all((await lostRuns()).map(run => home.view(run)));
    return views.flatMap(view => (view?.run.status === 'active' ? view.run.run : []));
  };

  it('goes on at the failed step, and passes every step that needs no Google Cloud', async () => {
    const {code, ok, spent_usd, steps, stderr} = await smoke();
    assert.equal(code, 0, stderr);
    assert.equal(ok, true);
    assert.ok(spent_usd > 0 && spent_usd < 5, String(spent_usd));
    assert.deepEqual(
      steps.map(({status}) => status),
      [
        ...['passed', 'only on Google Cloud', 'passed', 'passed', 'passed', 'passed', 'passed', 'passed'],
        ...['only on Google Cloud', 'passed'],
      ],
    );
    const saw = Object.fromEntries(steps.map(each => [each.step, each.saw]));
    assert.match(saw['ten samples'] ?? '', /every one of 10 samples is stored once/);
    assert.match(saw['a lost node'] ?? '', /incarnation \d+ .*every one of \d+ samples/);
    assert.match(
      saw['a queue and a stop'] ?? '',
      /^try-v5litepod-1-us-central1-a-0 came through a queued resource/,
    );
    assert.match(stderr, /deployment: passed before/);
    const lost = await lostRuns();
    // The run of the interrupted attempt is adopted, stopped, or complete before the next attempt. It spends no second budget.
    assert.notEqual((await home.view(lost[0] ?? ''))?.run.status, 'active');
    assert.equal((await home.view(lost.at(-1) ?? ''))?.run.status, 'completed');
    assert.deepEqual((await home.state()).queued_resources, []);
  });

  it('does nothing again after it passed, and refuses the state of another project', async () => {
    const {steps} = await smoke();
    assert.deepEqual(JSON.parse(readFileSync(file, 'utf8')).steps['a job'].saw, steps.at(-1)?.saw);
    writeFileSync(file, readFileSync(file, 'utf8').replace(/"project": "[^"]+"/, '"project": "other"'));
    const {code, stderr} = await gleaner(['smoke', '--dir', home.dir, '--state-file', file]);
    assert.equal(code, 1);
    assert.match(stderr, /belongs to gleaner in other: name another --state-file/);
  });

  it('is destroyed by the command for Google Cloud, with a program in place of Terraform', async () => {
    const {project, url} = home.ready;
    const state = `${project}-gleaner-terraform`;
    const own = urlWithToken(url, home.token);
    await fetch(`${own}/storage/v1/b?project=${project}`, {
      method: 'POST',
      body: JSON.stringify({name: state}),
    });
    // The functions elsewhere, and the Scheduler where the local cloud has its job.
    const regions = {region: 'europe-west9', scheduler_region: 'us-central1'};
    const settings = {project, ...regions, zones: ['us-central1-a'], max_budget_usd: 5};
    const given = join(home.dir, 'settings.json');
    writeFileSync(given, JSON.stringify(settings));
    const bin = join(home.dir, 'bin');
    mkdirSync(bin);
    writeFileSync(join(bin, 'terraform'), '#!/bin/sh\necho "$2" >> "$CALLS"\n', {mode: 0o755});
    await home.drop('datasets/last/stream_000.jsonl', texts(20_000, 's'));
    await home.until(
      'a TPU',
      () => home.state(),
      ({tpus}) => tpus.some(({state}) => state === 'READY'),
    );
    const {firestore_endpoint = '', pubsub_endpoint} = await home.state();
    const {code, stdout, stderr} = await gleaner(['destroy', given, '--yes', '--json'], {
      env: {
        PATH: `${bin}${delimiter}${process.env.PATH}`,
        CALLS: join(home.dir, 'calls'),
        GLEANER_GOOGLE_APIS: own,
        STORAGE_EMULATOR_HOST: own,
        FIRESTORE_EMULATOR_HOST: firestore_endpoint,
        PUBSUB_EMULATOR_HOST: pubsub_endpoint,
      },
    });
    assert.equal(code, 0, stderr);
    assert.match(stderr, /pool tpu has workers_per_zone 0/);
    assert.deepEqual((await home.state()).tpus, []);
    assert.equal(readFileSync(join(home.dir, 'calls'), 'utf8'), 'init\nstate\ndestroy\n');
    const {stays} = JSON.parse(stdout) as {stays: {command: string}[]};
    assert.match(stays.at(-1)?.command ?? '', new RegExp(`gs://${state}/gleaner`));
    assert.match((await gleaner(['tick', 'state', '--dir', home.dir])).stdout, /PAUSED/);
  });
});
