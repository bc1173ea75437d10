import assert from 'node:assert/strict';
import type {LocalCloud} from '../../emulator/cloud.ts';
import {processes} from '../e2e/home.ts';
import {put, Scratch, writeUrl} from '../emulator/a-cloud.ts';
import {until} from '../support/until.ts';
import {needEmulators} from './emulators.ts';

describe("A local cloud with Google's emulators @full", () => {
  const scratch = new Scratch();
  let cloud: LocalCloud;
  before(async function () {
    needEmulators(this);
    cloud = await scratch.cloud({google_emulators: true});
  });
  after(() => scratch.end());

  const served = (host: string) =>
    processes().find(({pid, pgid, args}) => pid === pgid && args.endsWith(`--port=${host.split(':')[1]}`));

  it("publishes notifications on Google's Pub/Sub, and passes the requests of gcloud on", async () => {
    const call = async (path: string, body?: object) => {
      const init = body && {method: 'POST', body: JSON.stringify(body)};
      const answer = await fetch(`${writeUrl(cloud)}/v1/projects/${cloud.project}/${path}`, init);
      return (await answer.json()) as {topics?: {name: string}[]; receivedMessages?: {message: object}[]};
    };
    const {topics = []} = await call('topics');
    assert.ok(topics.some(({name}) => name.endsWith('/topics/dead')));
    const direct = `http://${cloud.pubsub_endpoint}/v1/projects/${cloud.project}/subscriptions/probe`;
    const topic = `projects/${cloud.project}/topics/objects`;
    const headers = {'content-type': 'application/json'};
    await fetch(direct, {method: 'PUT', headers, body: JSON.stringify({topic})});
    await put(cloud, 'datasets/my-run/stream_000.jsonl');
    const message = await until('the notification', async () => {
      const pulled = await call('subscriptions/probe:pull', {maxMessages: 1, returnImmediately: true});
      return pulled.receivedMessages?.[0]?.message as {attributes: Record<string, string>} | undefined;
    });
    assert.equal(message.attributes.objectId, 'datasets/my-run/stream_000.jsonl');
  });

  it('refuses a write without its token on the way to the emulator', async () => {
    const topic = `${cloud.url}/v1/projects/${cloud.project}/topics/control`;
    const body = JSON.stringify({messages: [{data: 'e30='}]});
    assert.equal((await fetch(`${topic}:publish`, {method: 'POST', body})).status, 401);
    await assert.rejects(cloud.fault('drop', 'control'), /a target is all or one of object, document;/);
  });

  it('fails with the name of an emulator that ended, and ends the other', async () => {
    const {firestore_endpoint = '', pubsub_endpoint} = cloud;
    process.kill(served(firestore_endpoint)?.pid ?? assert.fail('no emulator'), 'SIGKILL');
    await assert.rejects(cloud.closed, {
      code: 'emulator-ended',
      message: /^Google's Firestore emulator ended \(SIGKILL\); its log is .*firestore\.log$/,
    });
    assert.ok(served(pubsub_endpoint));
    await cloud.close();
    assert.equal(served(pubsub_endpoint), undefined);
  });
});
