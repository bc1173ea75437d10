import assert from 'node:assert/strict';
import type {AddressInfo} from 'node:net';
import {cloudEvent} from '@google-cloud/functions-framework';
import {getTestServer} from '@google-cloud/functions-framework/testing';
import {parseValue, pubsubEvent} from '../../../shared/contracts/schemas.ts';

const MESSAGE = {
  data: Buffer.from('{"action":"pause","run":"my-run"}').toString('base64'),
  attributes: {source: 'scheduler'},
  messageId: '77',
  publishTime: '2026-11-22T10:00:00.123Z',
};
const SUBSCRIPTION = 'projects/p/subscriptions/s';

/** Posts a message to a function, and returns the event that the function reads. */
async function read(headers: Record<string, string>, body: object) {
  let event: {id: string; data?: unknown} | undefined;
  cloudEvent('probe', (given: {id: string; data?: unknown}) => {
    event = given;
  });
  const server = getTestServer('probe');
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', () => resolve()));
  try {
    const {port} = server.address() as AddressInfo;
    const answer = await fetch(`http://127.0.0.1:${port}/projects/p/topics/control`, {
      method: 'POST',
      headers: {'content-type': 'application/json', ...headers},
      body: JSON.stringify(body),
    });
    assert.equal(answer.status, 204, await answer.text());
    return {id: event?.id, ...parseValue(pubsubEvent, event?.data, 'The event')};
  } finally {
    await new Promise(resolve => server.close(resolve));
  }
}

describe('a Pub/Sub message keeps its id, publish time and attributes', () => {
  const then = {
    id: '77',
    text: '{"action":"pause","run":"my-run"}',
    published_at: '2026-11-22T10:00:00.123Z',
    attributes: {source: 'scheduler'},
  };

  it('as an event of Eventarc', async () => {
    const headers = {
      'ce-specversion': '1.0',
      'ce-id': '77',
      'ce-type': 'google.cloud.pubsub.topic.v1.messagePublished',
      'ce-source': '//pubsub.googleapis.com/projects/p/topics/control',
    };
    assert.deepEqual(await read(headers, {message: MESSAGE, subscription: SUBSCRIPTION}), then);
  });

  it('as a push of a subscription, which the framework makes an event', async () => {
    assert.deepEqual(await read({}, {message: MESSAGE, subscription: SUBSCRIPTION}), then);
  });
});
