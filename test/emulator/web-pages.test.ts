import assert from 'node:assert/strict';
import {type ChannelOptions, Client, credentials, Metadata, status} from '@grpc/grpc-js';
import type {LocalCloud} from '../../emulator/cloud.ts';
import {Scratch} from '../support/machine/a-cloud.ts';
import {headAs} from './plain-http.ts';

describe('A request to a local cloud from a browser on the same machine', () => {
  const scratch = new Scratch(after);
  let cloud: LocalCloud;
  before(async () => {
    cloud = await scratch.cloud();
  });

  const pages: {name: string; headers: Record<string, string>}[] = [
    {name: 'a page of another site', headers: {origin: 'https://evil.example'}},
    {name: 'a page of another local port', headers: {origin: 'http://localhost:3000'}},
    {name: 'a page of a file', headers: {origin: 'null'}},
    {name: 'a page without an origin', headers: {'sec-fetch-site': 'cross-site'}},
    {name: 'a page of a local server, which is the same site', headers: {'sec-fetch-site': 'same-site'}},
    {name: 'a page with a rebound DNS name', headers: {host: 'evil.example'}},
  ];
  for (const {name, headers} of pages)
    it(`is refused over HTTP to ${name}`, async () => {
      assert.equal((await headAs(cloud.port, headers)).status, 403);
    });

  for (const {name, headers} of pages)
    it(`is refused over gRPC to ${name}`, async () => {
      const {host, ...metadata} = headers;
      const options = host === undefined ? {} : {'grpc.default_authority': host};
      assert.equal(await callPubSub(cloud, options, metadata), status.PERMISSION_DENIED);
    });

  it('differs from the gRPC call of a program, which is answered', async () => {
    assert.equal(await callPubSub(cloud, {}, {authorization: `Bearer ${cloud.token}`}), status.OK);
  });

  it('is answered to a page of the cloud itself, with headers that keep other pages out', async () => {
    const own = {origin: cloud.url, 'sec-fetch-site': 'same-origin'};
    const answer = await headAs(cloud.port, own);
    assert.equal(answer.status, 200);
    assert.equal(answer.headers['x-content-type-options'], 'nosniff');
    assert.equal(answer.headers['cross-origin-resource-policy'], 'same-origin');
  });
});

/** Status of a call of ListTopics. */
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
