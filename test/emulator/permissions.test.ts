import assert from 'node:assert/strict';
import {PubSub} from '@google-cloud/pubsub';
import type {LocalCloud} from '../../emulator/cloud.ts';
import {GooglePubsub} from '../../emulator/google/pubsub.ts';
import {accessTokenOf} from '../../emulator/http/access-tokens.ts';
import {accountsOf} from '../../emulator/http/identity.ts';
import {authorized, permissionOf} from '../../emulator/http/permissions.ts';
import {cloudState, Scratch} from '../support/machine/a-cloud.ts';
import {answered, OPEN} from './each-route.ts';

const ACCOUNTS = {
  ...accountsOf('gleaner-local', 'gleaner'),
  'worker of another project': accountsOf('elsewhere', 'gleaner').worker,
  stranger: 'stranger@gleaner-local.iam.gserviceaccount.com',
};

/** What Google lets every account call, and batches, whose calls are looked at one by one. */
const EVERY_ACCOUNT = [
  ...OPEN,
  'GET /v1/services/{service}/skus',
  ...['POST /batch/compute/v1', 'POST /batch/storage/v1'],
];
const ZONE = '/v2/projects/{project}/locations/{zone}';
const INSTANCES = '/compute/v1/projects/{project}/zones/{zone}';
const CONTROL = [
  ...['nodes', 'queuedResources'].flatMap(kind => [
    ...[`GET ${ZONE}/${kind}`, `POST ${ZONE}/${kind}`],
    ...[`GET ${ZONE}/${kind}/{name}`, `DELETE ${ZONE}/${kind}/{name}`],
  ]),
  `GET ${ZONE}/operations/{name}`,
  ...[`GET ${INSTANCES}/instances`, `POST ${INSTANCES}/instances`],
  ...[`GET ${INSTANCES}/instances/{name}`, `DELETE ${INSTANCES}/instances/{name}`],
  ...[`GET ${INSTANCES}/operations/{name}`, `POST ${INSTANCES}/operations/{name}/wait`],
  'GET /compute/v1/projects/{project}/aggregated/instances',
];
const MORE: Partial<Record<keyof typeof ACCOUNTS, string[]>> = {
  control: CONTROL,
  'worker-api': ['GET /b/{bucket}', 'GET /storage/v1/b/{bucket}'],
};
const PUBLISHES: Partial<Record<keyof typeof ACCOUNTS, string[]>> = {
  control: ['tick', 'tpu'],
  'worker-api': ['tick'],
};

describe('On the local cloud, an account', () => {
  const scratch = new Scratch(after);
  let cloud: LocalCloud;
  before(async () => {
    ({cloud} = await scratch.cloudWithFunctions());
  });
  const bearerOf = (email: string) => ({authorization: `Bearer ${accessTokenOf(cloud.token, email)}`});

  for (const [who, email] of Object.entries(ACCOUNTS) as [keyof typeof ACCOUNTS, string][]) {
    it(`calls what its roles at Google permit, of every address: ${who}`, async () => {
      const permitted = [...EVERY_ACCOUNT, ...(MORE[who] ?? [])];
      const key = {'x-goog-api-key': accessTokenOf(cloud.token, email)};
      for (const headers of [bearerOf(email), key])
        assert.deepEqual(await answered(cloud, '', headers), permitted.toSorted());
      const state = await cloudState<{faults: []; scheduler: string}>(cloud);
      assert.deepEqual([state.faults, state.scheduler], [[], 'ENABLED']);
    });

    it(`publishes only on its topics: ${who}`, async () => {
      const topics = ['control', 'objects', 'tick', 'tpu'];
      const overHttp = async (topic: string) => {
        const url = `${cloud.url}/v1/projects/${cloud.project}/topics/${topic}:publish`;
        const body = '{"messages":[{"data":"e30="}]}';
        return (await fetch(url, {method: 'POST', headers: bearerOf(email), body})).status === 200;
      };
      process.env.PUBSUB_EMULATOR_HOST = cloud.pubsub_endpoint;
      const pubsub = new PubSub({projectId: cloud.project});
      delete process.env.PUBSUB_EMULATOR_HOST;
      const gaxOpts = {otherArgs: {headers: bearerOf(email)}};
      const overGrpc = (topic: string) =>
        pubsub
          .topic(topic, {gaxOpts})
          .publishMessage({json: {}})
          .then(
            () => true,
            ({code}) => assert.equal(code, 7),
          );
      for (const publish of [overHttp, overGrpc]) {
        const done: string[] = [];
        for (const topic of topics) if (await publish(topic)) done.push(topic);
        assert.deepEqual(done, PUBLISHES[who] ?? [], publish.name);
      }
      await assert.rejects(pubsub.getTopics({gaxOpts}), {code: 7});
      await assert.rejects(pubsub.createTopic('new', gaxOpts), {code: 7});
      await pubsub.close();
    });
  }

  it('calls nothing in a batch that it may not call outside of one', async () => {
    const call = `GET ${INSTANCES.replace('{project}', 'gleaner-local').replace('{zone}', 'us-central1-a')}/instances`;
    const body = `--b\r\nContent-Type: application/http\r\n\r\n${call} HTTP/1.1\r\n\r\n\r\n--b--\r\n`;
    for (const [who, says] of [
      ['worker', /HTTP\/1.1 403/],
      ['control', /HTTP\/1.1 200/],
    ] as const) {
      const headers = {...bearerOf(ACCOUNTS[who]), 'content-type': 'multipart/mixed; boundary=b'};
      const answer = await fetch(`${cloud.url}/batch/compute/v1`, {method: 'POST', headers, body});
      assert.match(await answer.text(), says);
    }
  });

  it('cannot get a new address without a permission', () => {
    assert.throws(() => authorized([['GET', '/new', () => ({})]]), /no permission for GET \/new: add a row/);
    const google = new GooglePubsub({host: '127.0.0.1:9', project: 'p', push_token: ''});
    assert.deepEqual([...new Set(google.routes().map(permissionOf))], ['pubsub']);
  });
});
