import assert from 'node:assert/strict';
import {type ChildProcess, fork} from 'node:child_process';
import {once} from 'node:events';
import {chmodSync, existsSync, readFileSync, renameSync, statSync, symlinkSync} from 'node:fs';
import {join} from 'node:path';
import {fileURLToPath} from 'node:url';
import {PubSub} from '@google-cloud/pubsub';
import {type ChannelOptions, Client, credentials, Metadata, status} from '@grpc/grpc-js';
import type {LocalCloud} from '../../emulator/cloud.ts';
import {HOST_HEADER, tokenFile, tokenIn} from '../../emulator/guard.ts';
import {door, functionsModule, readLines, Scratch, type Seen, until} from './a-cloud.ts';
import {headAs} from './plain-http.ts';

const zone = '/v2/projects/gleaner-local/locations/us-central1-a';
const job = '/v1/projects/gleaner-local/locations/us-central1/jobs/gleaner-tick';
const object = '/storage/v1/b/gleaner-local/o/kept';

describe('the token of a local cloud', () => {
  const scratch = new Scratch();
  let cloud: LocalCloud;
  let seen: () => Seen[];
  before(async () => {
    ({cloud, seen} = await scratch.cloudWithFunctions());
    const upload = `${door(cloud)}/upload/storage/v1/b/gleaner-local/o?uploadType=media&name=kept`;
    assert.equal((await fetch(upload, {method: 'POST', body: 'kept'})).status, 200);
  });
  after(() => scratch.end());

  it('lies in a file that only its user can read, and outlives a restart', async () => {
    const first = await scratch.cloud();
    assert.equal(statSync(tokenFile(first.dir)).mode & 0o777, 0o600);
    await first.close();
    assert.equal((await scratch.cloud({dir: first.dir})).token, first.token);
    assert.notEqual(first.token, cloud.token);
  });

  const strangers = [
    {name: 'that the group can read', open: (file: string) => chmodSync(file, 0o640)},
    {name: 'of mode 0644', open: (file: string) => chmodSync(file, 0o644)},
    {name: 'that other users can write', open: (file: string) => chmodSync(file, 0o602)},
    {
      name: 'that is a symbolic link',
      open: (file: string) => {
        renameSync(file, `${file}.kept`);
        symlinkSync(`${file}.kept`, file);
      },
    },
  ];
  for (const {name, open} of strangers)
    it(`is made anew in the place of a file ${name}`, () => {
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
  const writes = [
    {name: 'creates a TPU', method: 'POST', path: `${zone}/nodes?nodeId=evil`, body: tpu},
    {name: 'deletes a TPU', method: 'DELETE', path: `${zone}/nodes/evil`},
    {name: 'queues a TPU', method: 'POST', path: `${zone}/queuedResources?queuedResourceId=evil`, body: {}},
    {name: 'publishes', method: 'POST', path: '/v1/projects/gleaner-local/topics/control:publish', body: {}},
    {name: 'makes a topic', method: 'PUT', path: '/v1/projects/gleaner-local/topics/evil'},
    {name: 'resumes the ticker', method: 'POST', path: `${job}:resume`},
    {
      name: 'uploads',
      method: 'POST',
      path: '/upload/storage/v1/b/gleaner-local/o?uploadType=media&name=evil',
    },
    {name: 'deletes an object', method: 'DELETE', path: object},
    {name: 'changes an object', method: 'PATCH', path: object, body: {}},
    {name: 'deletes in a batch', method: 'POST', path: '/batch/storage/v1'},
    {name: 'makes a bucket', method: 'POST', path: '/storage/v1/b', body: {name: 'evil'}},
    {
      name: 'injects a fault',
      method: 'POST',
      path: '/_local/faults',
      body: {kind: 'stockout', target: 'all'},
    },
    {name: 'ends the cloud', method: 'POST', path: '/_local/shutdown'},
    {name: 'calls worker-api', method: 'POST', path: '/functions/worker-api', body: {}},
    {name: 'calls worker-api with GET', method: 'GET', path: '/functions/worker-api'},
  ];
  for (const {name, method, path, body} of writes)
    it(`is asked for by a request that ${name}`, async () => {
      const init = {method, ...(body ? {body: JSON.stringify(body)} : {})};
      const wrong = 'f'.repeat(64);
      const attempts: [string, Record<string, string>][] = [
        [`${cloud.url}${path}`, {}],
        [`${cloud.url}/as/${wrong}${path}`, {authorization: `Bearer ${cloud.token}`}],
        [`${cloud.url}${path}`, {authorization: `Bearer ${wrong}`}],
        [`${cloud.url}${path}`, {authorization: `Bearer ${identityOf('{"exp":9999999999}')}`}],
        [`${cloud.url}${path}`, {'x-goog-api-key': ''}],
        [`${cloud.url}${path}${path.includes('?') ? '&' : '?'}upload_id=x`, {}],
      ];
      for (const [url, headers] of attempts) {
        const answer = await fetch(url, {...init, headers});
        assert.equal(answer.status, 401, `${url} ${JSON.stringify(headers)}: ${await answer.text()}`);
      }
    });

  it('keeps a stranger from everything: nothing was made, deleted or run', async () => {
    const state = (await (await fetch(`${cloud.url}/_local`)).json()) as {
      tpus: [];
      faults: [];
      ticker: string;
    };
    assert.deepEqual([state.tpus, state.faults, state.ticker], [[], [], 'off']);
    assert.equal(await (await fetch(`${cloud.url}${object}?alt=media`)).text(), 'kept');
    assert.equal(existsSync(join(cloud.dir, 'ran')), false);
    assert.doesNotMatch(await (await fetch(`${cloud.url}/_local`)).text(), new RegExp(cloud.token));
  });

  it('is asked for by a publish over gRPC', async () => {
    process.env.PUBSUB_EMULATOR_HOST = cloud.pubsub_endpoint;
    const pubsub = new PubSub({projectId: cloud.project});
    delete process.env.PUBSUB_EMULATOR_HOST;
    await assert.rejects(pubsub.topic('control').publishMessage({json: {}}), {
      code: 16,
      message: /Google's Pub\/Sub clients send none.*gcloud pubsub topics publish/,
    });
    await assert.rejects(pubsub.createTopic('silence'), {code: 16});
    assert.deepEqual(await pubsub.topic('control').exists(), [true]);
    await pubsub.close();
  });

  it('is taken as Bearer, as the key of an API, and in the path', async () => {
    const {token} = cloud;
    const publish = '/v1/projects/gleaner-local/topics/control:publish';
    const init = {method: 'POST', body: '{"messages":[{"data":"eA=="}]}'};
    for (const headers of [{authorization: `Bearer ${token}`}, {'x-goog-api-key': token}])
      assert.equal((await fetch(`${cloud.url}${publish}`, {...init, headers})).status, 200);
    assert.equal((await fetch(`${door(cloud)}${publish}`, init)).status, 200);
    await until('they arrived', () => seen().filter(({text}) => text === 'x').length === 3);
  });

  it('opens a VM its worker-api, and a metadata server answers only its own VM', async () => {
    const metadata = {'startup-script': '#!/bin/sh\necho "server $GCE_METADATA_HOST"; sleep 1000'};
    const answer = await fetch(`${door(cloud)}${zone}/nodes?nodeId=vm`, {
      method: 'POST',
      body: JSON.stringify({...tpu, metadata}),
    });
    assert.equal(answer.status, 200);
    const log = join(cloud.dir, 'logs', 'vm-1.log');
    const host = await until('the VM says where', () =>
      existsSync(log) ? /server (\S+)/.exec(readFileSync(log, 'utf8'))?.[1] : undefined,
    );
    const account = 'computeMetadata/v1/instance/service-accounts/default';
    const headers = {'metadata-flavor': 'Google'};
    const [bare = ''] = host.split('/');
    for (const path of [`${account}/token`, `0123/${account}/token`, '', `${account}/identity?audience=x`])
      assert.equal((await fetch(`http://${bare}/${path}`, {headers})).status, 403, path);
    const identity = await (await fetch(`http://${host}/${account}/identity?audience=x`, {headers})).text();
    const asked = await fetch(`${cloud.url}/functions/worker-api`, {
      method: 'POST',
      headers: {authorization: `Bearer ${identity}`, 'content-type': 'application/json'},
      body: '{}',
    });
    assert.equal(asked.status, 200, await asked.text());
    const bundle = await fetch(`${cloud.url}${object}`, {
      method: 'DELETE',
      headers: {authorization: `Bearer ${identity}`},
    });
    assert.equal(bundle.status, 401, 'an identity is no right to write');
  });
});

describe('a page in a browser on the same machine', () => {
  const scratch = new Scratch();
  let cloud: LocalCloud;
  before(async () => {
    cloud = await scratch.cloud();
  });
  after(() => scratch.end());

  const pages: {name: string; headers: Record<string, string>}[] = [
    {name: 'of another site', headers: {origin: 'https://evil.example'}},
    {name: 'of another local port', headers: {origin: 'http://localhost:3000'}},
    {name: 'of a file', headers: {origin: 'null'}},
    {name: 'that says nothing of its origin', headers: {'sec-fetch-site': 'cross-site'}},
    {name: 'of a local server, which is the same site', headers: {'sec-fetch-site': 'same-site'}},
    {name: 'of a rebound name', headers: {host: 'evil.example'}},
  ];
  for (const {name, headers} of pages)
    it(`${name} is refused`, async () => {
      assert.equal((await headAs(cloud.port, headers)).status, 403);
    });

  for (const {name, headers} of pages)
    it(`${name} is refused over gRPC`, async () => {
      const {host, ...metadata} = headers;
      const options = host === undefined ? {} : {'grpc.default_authority': host};
      assert.equal(await callPubSub(cloud, options, metadata), status.PERMISSION_DENIED);
    });

  it('is told apart from a program, whose gRPC call is answered', async () => {
    assert.equal(await callPubSub(cloud, {}, {}), status.OK);
  });

  it('of the cloud itself is answered, in a form that no other page can use', async () => {
    const own = {origin: cloud.url, 'sec-fetch-site': 'same-origin'};
    const answer = await headAs(cloud.port, own);
    assert.equal(answer.status, 200);
    assert.equal(answer.headers['x-content-type-options'], 'nosniff');
    assert.equal(answer.headers['cross-origin-resource-policy'], 'same-origin');
  });
});

describe('the ports of the functions', () => {
  const scratch = new Scratch();
  let host: ChildProcess;
  let port: number;
  let file: string;
  before(async () => {
    file = join(scratch.dir(), 'seen.jsonl');
    const entry = fileURLToPath(new URL('../../emulator/function-host.ts', import.meta.url));
    const env = {...process.env, SEEN: file, GLEANER_LOCAL_TOKEN: 'secret'};
    host = fork(entry, [functionsModule, 'on-control'], {env, stdio: ['ignore', 'ignore', 'inherit', 'ipc']});
    const [{ports}] = (await once(host, 'message')) as [{ports: Record<string, number>}];
    port = ports['on-control'] ?? 0;
  });
  after(async () => {
    host.kill('SIGKILL');
    await scratch.end();
  });

  const data = Buffer.from('{"action":"scale"}').toString('base64');
  const form = {'content-type': 'application/x-www-form-urlencoded'};
  const event = {
    'content-type': 'application/json',
    ...{'ce-specversion': '1.0', 'ce-id': '1', 'ce-type': 'x', 'ce-source': 'x'},
  };
  const path = '/projects/gleaner-local/topics/control';
  it("refuse forms and events that are not the cloud's own", async () => {
    const body = `message[data]=${encodeURIComponent(data)}`;
    for (const headers of [form, {...form, [HOST_HEADER]: 'guess'}, {...form, [HOST_HEADER]: ''}])
      assert.equal(
        (await fetch(`http://127.0.0.1:${port}${path}`, {method: 'POST', headers, body})).status,
        401,
      );
    const json = JSON.stringify({message: {data}});
    const init = {method: 'POST', headers: event, body: json};
    assert.equal((await fetch(`http://127.0.0.1:${port}/`, init)).status, 401);
    const page = {...event, [HOST_HEADER]: 'secret', origin: 'https://evil.example'};
    assert.equal((await fetch(`http://127.0.0.1:${port}/`, {...init, headers: page})).status, 403);
    assert.deepEqual(readLines(file), []);
    const own = {...event, [HOST_HEADER]: 'secret'};
    assert.equal((await fetch(`http://127.0.0.1:${port}/`, {...init, headers: own})).status, 204);
    assert.equal(readLines(file).length, 1);
  });
});

/** The status of a call of ListTopics. */
async function callPubSub(
  cloud: LocalCloud,
  options: ChannelOptions,
  metadata: Record<string, string>,
): Promise<status> {
  const client = new Client(cloud.pubsub_endpoint, credentials.createInsecure(), options);
  const project = Buffer.from(`projects/${cloud.project}`);
  // ListTopicsRequest as protobuf: field 1 is the project.
  const request = Buffer.from([10, project.length, ...project]);
  const same = (bytes: Buffer) => bytes;
  const sent = Metadata.fromHttp2Headers(metadata);
  const code = await new Promise<status>(resolve => {
    client.makeUnaryRequest('/google.pubsub.v1.Publisher/ListTopics', same, same, request, sent, error =>
      resolve(error?.code ?? status.OK),
    );
  });
  client.close();
  return code;
}

/** An identity token that another key has signed. */
function identityOf(payload: string): string {
  return ['{"alg":"none"}', payload, ''].map(part => Buffer.from(part).toString('base64url')).join('.');
}
