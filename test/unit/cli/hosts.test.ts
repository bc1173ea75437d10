import assert from 'node:assert/strict';
import {poolAnswers} from '../../../client/json/pools.ts';
import type {LocalCloud} from '../../../emulator/cloud.ts';
import {NO_HOST} from '../../../shared/domain/records/worker.ts';
import {Scratch} from '../../support/machine/a-cloud.ts';
import {gleaner} from '../../support/machine/command.ts';
import {aConfig, at, aWorker} from '../../world/builders.ts';
import {putInCloud} from '../../world/scenes/put-documents.ts';

describe('The commands about pools and hosts @full', () => {
  const scratch = new Scratch(after);
  let cloud: LocalCloud;
  const run = (...args: string[]) => gleaner([...args, '--port', new URL(cloud.url).port]);
  before(async () => {
    cloud = await scratch.cloud();
    const {pool} = aConfig();
    await putInCloud(cloud, {
      'pools/tpu': {...pool, limiter: {...pool.limiter, state: 'stopped', since_at: at(0)}},
      'pools/bad': {...pool, pool: 'bad', zones: 'us-central1-a'},
      'workers/tpu-us-central1-a-0': aWorker({
        ...{phase: 'idle', host_count: 3},
        hosts: {
          0: {...NO_HOST, hostname: 't1v\u001b[31m'},
          1: {
            ...NO_HOST,
            hostname: 't1w',
            address: '10.0.0.2',
            phase: 'running',
            heartbeat_at: at(5),
            source_version: 1,
            source_error: 'no such branch',
          },
        },
      }),
      'workers/tpu-us-central1-a-1': aWorker({name: 'tpu-us-central1-a-1', phase: 'booting'}),
    });
  });

  it('the commands about pools and hosts list the pools, name an invalid one, and say how to allow creates again', async () => {
    const {code, stdout, stderr} = await run('pools');
    assert.deepEqual([code, stdout.trim().split('\n').length], [0, 1]);
    assert.match(
      stdout,
      /us-central1-a {2}2 TPUs running, creates stopped since 2026-01-02 03:04:05 UTC: `gleaner/,
    );
    assert.match(stderr, /^Failed to read pools\/bad: zones: /);
    const json = await run('pools', '--json');
    assert.equal(poolAnswers.pools.parse(JSON.parse(json.stdout))[0]?.alive.length, 2);
  });

  it('the commands about pools and hosts list the hosts in columns, with a dash for an address that is unknown', async () => {
    const {stdout} = await run('discover');
    assert.deepEqual(stdout.trimEnd().split('\n'), [
      'HOST                   NAME          ADDRESS   PHASE',
      'tpu-us-central1-a-0/0  t1v\ufffd[31m      -         idle',
      'tpu-us-central1-a-0/1  t1w           10.0.0.2  running',
      'tpu-us-central1-a-0/2  no hello yet  -         booting',
      'tpu-us-central1-a-1/0  no hello yet  -         booting',
    ]);
    const json = await run('discover', '--json');
    const known = poolAnswers.discover.parse(JSON.parse(json.stdout));
    assert.deepEqual(
      known.map(({host, heartbeat_at}) => [host, heartbeat_at]),
      [
        [0, aWorker().heartbeat_at],
        [1, at(5)],
      ],
    );
  });

  it('the commands about pools and hosts name the hosts of a slice whose code failed, and the last word of each', async () => {
    const {stdout} = await run('versions');
    assert.match(stdout, /tpu-us-central1-a-0 .*\n {4}host 1 {2}failed: no such branch\n/);
    const status = (await run('tpus', 'status', 'tpu-us-central1-a-0')).stdout;
    assert.match(status, /\n {2}host 1 {6}running, 10\.0\.0\.2, 2026-01-02 03:04:10 UTC, /);
    assert.match(status, /\n {2}host 2 {6}booting, no report yet\n/);
  });

  it('the commands about pools and hosts list the runtime versions that a zone offers', async () => {
    const {stdout} = await run('versions', '--available', 'us-central1-a', '--json');
    const answer = poolAnswers.versions.parse(JSON.parse(stdout)) as {available: {versions: string[]}[]};
    assert.ok(answer.available[0]?.versions.includes('v2-alpha-tpuv5-lite'));
    const dry = await run('versions', '--available', '--dry-run');
    const command = 'gcloud compute tpus tpu-vm versions list --zone=us-central1-a --project=gleaner-local\n';
    assert.equal(dry.stdout, command);
  });
});
