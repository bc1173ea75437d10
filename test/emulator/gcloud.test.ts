import assert from 'node:assert/strict';
import {execFile, spawnSync} from 'node:child_process';
import {randomBytes} from 'node:crypto';
import {mkdirSync, readdirSync, readFileSync, writeFileSync} from 'node:fs';
import {join} from 'node:path';
import {promisify} from 'node:util';
import type {LocalCloud} from '../../emulator/cloud.ts';
import {openInstances} from '../../shared/google/instances.ts';
import {aRequest, COMPUTE_ENGINE} from '../contract/tpus-contract.ts';
import {cloudState, Scratch, type Seen, tokenUrl} from '../support/machine/a-cloud.ts';
import {gcloudEnvironment} from '../support/machine/gcloud-environment.ts';
import {until} from '../support/machine/until.ts';

describe('gcloud on the local cloud', () => {
  const scratch = new Scratch(after);
  let cloud: LocalCloud;
  let seen: () => Seen[];
  let dir: string;
  let env: NodeJS.ProcessEnv;
  before(async function () {
    if (spawnSync('which', ['gcloud']).status !== 0) {
      console.log('  skipped: gcloud is not installed');
      this.skip();
    }
    ({cloud, seen} = await scratch.cloudWithFunctions());
    dir = scratch.dir();
    env = {
      ...gcloudEnvironment(cloud, join(dir, 'config')),
      CLOUDSDK_API_ENDPOINT_OVERRIDES_PUBSUB: `${cloud.url}/`,
      CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU: `${cloud.url}/`,
      CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE: `${cloud.url}/compute/v1/`,
      CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDSCHEDULER: `${cloud.url}/`,
      // Low thresholds: gcloud transfers small files in the way of large files.
      CLOUDSDK_STORAGE_PARALLEL_COMPOSITE_UPLOAD_ENABLED: 'true',
      CLOUDSDK_STORAGE_PARALLEL_COMPOSITE_UPLOAD_THRESHOLD: '10M',
      CLOUDSDK_STORAGE_PARALLEL_COMPOSITE_UPLOAD_COMPONENT_SIZE: '5M',
      CLOUDSDK_STORAGE_SLICED_OBJECT_DOWNLOAD_THRESHOLD: '10M',
      CLOUDSDK_STORAGE_RESUMABLE_THRESHOLD: '1M',
    };
  });

  const gcloud = async (command: string, ...more: string[]): Promise<string> => {
    const args = command.replaceAll('BUCKET', `gs://${cloud.bucket}`).replaceAll('DIR', dir).split(' ');
    const {stdout} = await promisify(execFile)('gcloud', [...args, ...more], {env});
    return stdout.trim();
  };

  // docs/quickstart-local.md lists objects and TPUs.
  it('uploads and prints a file, and overwrites none against a precondition', async () => {
    const text = '{"text":"one"}\n{"text":"two"}\n';
    writeFileSync(join(dir, 'x.jsonl'), text);
    await gcloud('storage cp DIR/x.jsonl BUCKET/datasets/my-run/stream_000.jsonl');
    assert.equal(`${await gcloud('storage cat BUCKET/datasets/my-run/stream_000.jsonl')}\n`, text);
    await assert.rejects(
      gcloud('storage cp --if-generation-match=0 DIR/x.jsonl BUCKET/datasets/my-run/stream_000.jsonl'),
      /pre-conditions/,
    );
    assert.ok(
      seen().some(event => event.data?.message.attributes.objectId === 'datasets/my-run/stream_000.jsonl'),
    );
  });

  it('uploads, downloads, moves and removes folders @long', async () => {
    mkdirSync(join(dir, 'folder', 'deep'), {recursive: true});
    for (const name of ['a', 'deep/b', 'empty'])
      writeFileSync(join(dir, 'folder', name), name === 'empty' ? '' : name);
    await gcloud('storage cp -r DIR/folder BUCKET/up/');
    mkdirSync(join(dir, 'back'));
    await gcloud('storage cp -r BUCKET/up/folder DIR/back');
    assert.deepEqual(readdirSync(join(dir, 'back'), {recursive: true}).map(String).toSorted(), [
      'folder',
      'folder/a',
      'folder/deep',
      'folder/deep/b',
      'folder/empty',
    ]);
    assert.equal(readFileSync(join(dir, 'back/folder/deep/b'), 'utf8'), 'deep/b');
    await gcloud('storage mv BUCKET/up/folder/a BUCKET/up/moved');
    await gcloud('storage rm BUCKET/up/moved');
    await assert.rejects(gcloud('storage rm BUCKET/up/moved'), /matched no objects/);
    await gcloud('storage rm -r BUCKET/up');
    await assert.rejects(gcloud('storage ls BUCKET/up'), /matched no objects/);
  });

  it('uploads a large file in parts, and bytes of unknown length @long', async () => {
    const bytes = randomBytes(20 << 20);
    writeFileSync(join(dir, 'large'), bytes);
    await gcloud('storage cp DIR/large BUCKET/large');
    await gcloud('storage cp BUCKET/large DIR/large2');
    assert.ok(readFileSync(join(dir, 'large2')).equals(bytes));
    const whole = await fetch(`${tokenUrl(cloud)}/storage/v1/b/${cloud.bucket}/o/large`);
    const {componentCount} = (await whole.json()) as {componentCount: number};
    assert.ok(componentCount > 1, 'an upload in parts');
    const listed = (await gcloud('storage ls BUCKET/**')).split('\n');
    assert.deepEqual(listed, [
      `gs://${cloud.bucket}/datasets/my-run/stream_000.jsonl`,
      `gs://${cloud.bucket}/large`,
    ]);
    const args = [
      '-c',
      `head -c 9000000 "$0" | gcloud storage cp - gs://${cloud.bucket}/streamed`,
      join(dir, 'large'),
    ];
    await promisify(execFile)('bash', args, {env});
    const streamed = await fetch(`${tokenUrl(cloud)}/${cloud.bucket}/streamed`);
    assert.ok(Buffer.from(await streamed.arrayBuffer()).equals(bytes.subarray(0, 9_000_000)));
  });

  it('publishes messages and lists topics @long', async () => {
    const message = '{"action":"pause","run":"my-run"}';
    await gcloud('pubsub topics publish control', `--message=${message}`, '--attribute=who=me');
    const event = await until('the message arrived', () =>
      seen().find(candidate => candidate.text === message),
    );
    assert.equal(event.function, 'on-control');
    assert.deepEqual(event.data.message.attributes, {who: 'me'});
    assert.match(await gcloud('pubsub topics list'), /topics\/control/);
  });

  it('runs the job of the tick', async () => {
    const before = seen().filter(event => event.function === 'on-tick').length;
    await gcloud('scheduler jobs run gleaner-tick --location=us-central1');
    await until(
      'the tick arrived',
      () => seen().filter(event => event.function === 'on-tick').length > before,
    );
  });

  it('creates and deletes TPUs, and shows the reason of a refusal', async () => {
    writeFileSync(join(dir, 'startup.sh'), '#!/bin/bash\necho from gcloud; sleep 1000\n');
    const zone = '--zone=us-central1-a';
    const node = `tpu-us-central1-a-0 ${zone} --accelerator-type=v5litepod-1 --version=v2-alpha-tpuv5-lite --spot`;
    const create = `compute tpus tpu-vm create ${node}`;
    await gcloud(`${create} --metadata-from-file=startup-script=DIR/startup.sh`);
    await until('the VM runs the startup script', () => {
      const logs = join(cloud.dir, 'logs');
      return readdirSync(logs).some(file => readFileSync(join(logs, file), 'utf8').includes('from gcloud'));
    });
    await gcloud(`compute tpus tpu-vm delete tpu-us-central1-a-0 ${zone}`);
    await cloud.fault('stockout', 'us-central1-a');
    await assert.rejects(gcloud(create), /no more capacity in the zone/);
    await cloud.fault('clear', 'stockout');
  });

  // Before a merge, test/contract/instances.test.ts makes the same requests through the client of Compute Engine.
  it('lists, describes and deletes instances @long', async () => {
    const {project, url, token} = cloud;
    const name = 'tpu-us-central1-a-7';
    await openInstances({project, endpoint: url, token}).create(aRequest({...COMPUTE_ENGINE.request, name}));
    const list = 'compute instances list --filter=labels.managed-by=gleaner --format=value(name)';
    assert.equal(await gcloud(list), name);
    const type = `compute instances describe ${name} --zone=us-central1-a --format=value(machineType.basename())`;
    assert.equal(await gcloud(type), 'ct6e-standard-1t');
    await gcloud(`compute instances delete ${name} --zone=us-central1-a --quiet`);
    assert.equal(await gcloud(list), '');
  });

  // Before a merge, test/contract/tpu-queue.test.ts makes the same requests through the client of Cloud TPU.
  it('creates, lists, describes and deletes queued resources @long', async () => {
    const name = 'tpu-us-east5-b-0';
    const zone = '--zone=us-east5-b';
    await gcloud(
      `compute tpus queued-resources create ${name} --node-id=${name} ${zone} --accelerator-type=v5litepod-1 --runtime-version=v2-alpha-tpuv5-lite --spot --valid-until-duration=2h`,
    );
    const info = async () => JSON.stringify(await cloudState(cloud));
    await until('the queued resource is active', info, text => text.includes('"ACTIVE"'));
    const active = JSON.parse(
      await gcloud(`compute tpus queued-resources describe ${name} ${zone} --format=json`),
    );
    assert.deepEqual([active.tpu.nodeSpec[0].nodeId, active.spot], [name, {}]);
    const list = `compute tpus queued-resources list ${zone}`;
    assert.match(await gcloud(list), /tpu-us-east5-b-0 +us-east5-b .*v5litepod-1 +ACTIVE/);
    await gcloud(`compute tpus queued-resources delete ${name} ${zone} --force`);
    assert.match(await info(), /"queued_resources":\[\]/);
  });
});
