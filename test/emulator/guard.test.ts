import assert from 'node:assert/strict';
import {chmodSync, existsSync, readFileSync, renameSync, statSync, symlinkSync} from 'node:fs';
import {join} from 'node:path';
import {PubSub} from '@google-cloud/pubsub';
import type {LocalCloud} from '../../emulator/cloud.ts';
import {proofOf, tokenFile, tokenIn} from '../../emulator/http/guard.ts';
import {accountsOf} from '../../emulator/http/identity.ts';
import {cloudState, Scratch, type Seen, tokenUrl} from '../support/machine/a-cloud.ts';
import {until} from '../support/machine/until.ts';
import {answered, OPEN} from './each-route.ts';

const zone = '/v2/projects/gleaner-local/locations/us-central1-a';
const object = '/storage/v1/b/gleaner-local/o/kept';

describe('The token of a local cloud', () => {
  const scratch = new Scratch(after);
  let cloud: LocalCloud;
  let seen: () => Seen[];
  before(async () => {
    ({cloud, seen} = await scratch.cloudWithFunctions());
    const upload = `${tokenUrl(cloud)}/upload/storage/v1/b/gleaner-local/o?uploadType=media&name=kept`;
    assert.equal((await fetch(upload, {method: 'POST', body: 'kept'})).status, 200);
  });

  it('is in a file that only its user can read, and survives a restart', async () => {
    const first = await scratch.cloud();
    assert.equal(statSync(tokenFile(first.dir)).mode & 0o777, 0o600);
    await first.close();
    assert.equal((await scratch.cloud({dir: first.dir})).token, first.token);
    assert.notEqual(first.token, cloud.token);
  });

  const unsafeFiles = [
    {name: 'readable by its group', open: (file: string) => chmodSync(file, 0o640)},
    {name: 'readable by every user', open: (file: string) => chmodSync(file, 0o644)},
    {name: 'writable by other users', open: (file: string) => chmodSync(file, 0o602)},
    {
      name: 'a symbolic link',
      open: (file: string) => {
        renameSync(file, `${file}.kept`);
        symlinkSync(`${file}.kept`, file);
      },
    },
  ];
  for (const {name, open} of unsafeFiles)
    it(`is replaced when its file is ${name}`, () => {
      const dir = scratch.dir();
      const first = tokenIn(dir);
      open(tokenFile(dir));
      const second = tokenIn(dir);
      assert.notEqual(second, first);
      assert.equal(statSync(tokenFile(dir)).mode & 0o777, 0o600);
      assert.equal(tokenIn(dir), second);
    });

  const script = '#!/bin/sh\ntouch "$GLEANER_HOME/../../ran"\n';
  const tpu = {
    acceleratorType: 'v5litepod-1',
    runtimeVersion: 'v2-alpha-tpuv5-lite',
    metadata: {'startup-script': script},
  };
  it('is required for every address except those that reveal nothing', async () => {
    const wrong = 'f'.repeat(64);
    const attempts: [string, Record<string, string>][] = [
      ['', {}],
      [`/as/${wrong}`, {authorization: `Bearer ${cloud.token}`}],
      ['', {authorization: `Bearer ${wrong}`}],
      ['', {authorization: `Bearer ${identityOf('{"exp":9999999999}')}`}],
      ['', {'x-goog-api-key': ''}],
    ];
    for (const [prefix, headers] of attempts)
      assert.deepEqual(await answered(cloud, prefix, headers), OPEN, JSON.stringify([prefix, headers]));
  });

  it('keeps requests without a token from any effect', async () => {
    const state = await cloudState<{tpus: []; faults: []; scheduler: string}>(cloud);
    assert.deepEqual([state.tpus, state.faults, state.scheduler], [[], [], 'ENABLED']);
    assert.deepEqual(
      seen().filter(line => line.function === 'on-tick'),
      [],
    );
    assert.equal(await (await fetch(`${tokenUrl(cloud)}${object}?alt=media`)).text(), 'kept');
    assert.equal((await fetch(`${cloud.url}${object}?alt=media`)).status, 401);
    assert.equal(existsSync(join(cloud.dir, 'ran')), false);
  });

  it('keeps every fact from requests without a token, but the proof that the cloud knows it', async () => {
    assert.deepEqual(await (await fetch(`${cloud.url}/_local`)).json(), {});
    const {proof, ...others} = (await (await fetch(`${cloud.url}/_local?nonce=1`)).json()) as {proof: string};
    assert.deepEqual([proof, others], [proofOf(cloud.token, '1', String(cloud.port)), {}]);
    assert.equal(JSON.stringify(await cloudState(cloud)).includes(cloud.token), false);
  });

  it('is required for every call over gRPC', async () => {
    process.env.PUBSUB_EMULATOR_HOST = cloud.pubsub_endpoint;
    const pubsub = new PubSub({projectId: cloud.project});
    delete process.env.PUBSUB_EMULATOR_HOST;
    await assert.rejects(pubsub.topic('control').publishMessage({json: {}}), {
      code: 16,
      message: /Google's Pub\/Sub clients send no token.*gcloud pubsub topics publish/,
    });
    await assert.rejects(pubsub.createTopic('silence'), {code: 16});
    await assert.rejects(pubsub.topic('control').exists(), {code: 16});
    await assert.rejects(pubsub.getTopics(), {code: 16});
    await pubsub.close();
  });

  it('is accepted as a Bearer token, as an API key and in the path', async () => {
    const {token} = cloud;
    const publish = '/v1/projects/gleaner-local/topics/control:publish';
    const init = {method: 'POST', body: '{"messages":[{"data":"eA=="}]}'};
    for (const headers of [{authorization: `Bearer ${token}`}, {'x-goog-api-key': token}])
      assert.equal((await fetch(`${cloud.url}${publish}`, {...init, headers})).status, 200);
    assert.equal((await fetch(`${tokenUrl(cloud)}${publish}`, init)).status, 200);
    await until('three messages arrived', () => seen().filter(({text}) => text === 'x').length === 3);
  });

  it('reaches a VM only through the secret path of its metadata server, whose identity tokens open only worker-api, and only to invokers', async () => {
    const boot = async (name: string, email: string) => {
      const metadata = {'startup-script': '#!/bin/sh\necho "server $GCE_METADATA_HOST"; sleep 1000'};
      const answer = await fetch(`${tokenUrl(cloud)}${zone}/nodes?nodeId=${name}`, {
        method: 'POST',
        body: JSON.stringify({...tpu, metadata, serviceAccount: {email}}),
      });
      assert.equal(answer.status, 200);
      const log = join(cloud.dir, 'logs', `${name}-1.log`);
      return until('the VM printed the address of its metadata server', () =>
        existsSync(log) ? /server (\S+)/.exec(readFileSync(log, 'utf8'))?.[1] : undefined,
      );
    };
    const host = await boot('vm', accountsOf(cloud.project, 'gleaner').worker);
    const stranger = await boot('stranger', 'stranger@gleaner-local.iam.gserviceaccount.com');
    const account = 'computeMetadata/v1/instance/service-accounts/default';
    const headers = {'metadata-flavor': 'Google'};
    const [bare = ''] = host.split('/');
    for (const path of [`${account}/token`, `0123/${account}/token`, '', `${account}/identity?audience=x`])
      assert.equal((await fetch(`http://${bare}/${path}`, {headers})).status, 403, path);
    const url = `${cloud.url}/functions/worker-api`;
    const tokenOf = async (server: string, audience: string) => {
      const query = new URLSearchParams({audience, format: 'full'});
      return (await fetch(`http://${server}/${account}/identity?${query}`, {headers})).text();
    };
    const ask = async (token: string) =>
      fetch(url, {
        method: 'POST',
        headers: {authorization: `Bearer ${token}`, 'content-type': 'application/json'},
        body: '{}',
      });
    const identity = await tokenOf(host, url);
    const asked = await ask(identity);
    assert.equal(asked.status, 200, await asked.text());
    assert.equal((await ask(await tokenOf(stranger, url))).status, 403, 'the account is no invoker');
    assert.equal((await ask(await tokenOf(host, cloud.url))).status, 401, 'the token is for another service');
    const bundle = await fetch(`${cloud.url}${object}`, {
      method: 'DELETE',
      headers: {authorization: `Bearer ${identity}`},
    });
    assert.equal(bundle.status, 401, 'an identity token permits no write');
  });
});

/** Identity token without a valid signature. */
function identityOf(payload: string): string {
  return ['{"alg":"none"}', payload, ''].map(part => Buffer.from(part).toString('base64url')).join('.');
}
