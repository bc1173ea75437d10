import assert from 'node:assert/strict';
import {cloudEvent} from '@google-cloud/functions-framework';
import {getTestServer} from '@google-cloud/functions-framework/testing';
import {Rejected} from '../../../shared/contracts/errors.ts';
import {pushId, readNotification, readPush} from '../../../shared/contracts/messages/push.ts';
import {listen} from '../../support/machine/listen.ts';

const MESSAGE = {
  data: Buffer.from('{"action":"pause","run":"my-run"}').toString('base64'),
  attributes: {source: 'scheduler'},
  messageId: '77',
  publishTime: '2026-11-22T10:00:00.123Z',
};
const SUBSCRIPTION = 'projects/p/subscriptions/s';

/** Posts a message to a function, and returns the event that the function reads. */
async function receive(headers: Record<string, string>, body: object): Promise<unknown> {
  let event: unknown;
  cloudEvent('probe', (given: unknown) => {
    event = given;
  });
  const server = getTestServer('probe');
  const address = await listen(server);
  try {
    const answer = await fetch(`http://${address}/projects/p/topics/control`, {
      method: 'POST',
      headers: {'content-type': 'application/json', ...headers},
      body: JSON.stringify(body),
    });
    assert.equal(answer.status, 204, await answer.text());
    return event;
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
  const pushed = {message: MESSAGE, subscription: SUBSCRIPTION};

  it('as an event of Eventarc', async () => {
    const headers = {
      'ce-specversion': '1.0',
      'ce-id': '77',
      'ce-type': 'google.cloud.pubsub.topic.v1.messagePublished',
      'ce-source': '//pubsub.googleapis.com/projects/p/topics/control',
    };
    assert.deepEqual(readPush(await receive(headers, pushed)), then);
  });

  it('as a push of a subscription, which the framework makes an event', async () => {
    assert.deepEqual(readPush(await receive({}, pushed)), then);
  });

  it('as a push without data, which the framework passes as it is', async () => {
    for (const data of ['', undefined]) {
      const event = await receive({}, {...pushed, message: {...MESSAGE, data}});
      assert.deepEqual(readPush(event), {...then, text: ''});
      assert.equal(pushId(event), '77');
    }
  });

  it('as a push with the id under its other name alone', async () => {
    const {messageId: message_id, ...others} = MESSAGE;
    assert.deepEqual(readPush(await receive({}, {...pushed, message: {...others, message_id}})), then);
  });
});

describe('a push without an id', () => {
  it('has one id at every delivery, and another id than another push', async () => {
    const {messageId: _, ...message} = MESSAGE;
    const ids = await Promise.all(
      [message, message, {...message, data: 'eA=='}, {...message, messageId: 7}].map(
        async (each, deliveryAttempt) =>
          pushId(await receive({}, {message: each, subscription: SUBSCRIPTION, deliveryAttempt})),
      ),
    );
    assert.match(ids[0] ?? '', /^[0-9a-f]{64}$/);
    assert.equal(ids[0], ids[1]);
    assert.equal(new Set(ids).size, 3);
  });
});

describe('an event without a readable message is rejected', () => {
  const cases: {name: string; event: unknown; says: RegExp}[] = [
    {name: 'a list', event: [1, 2], says: /The event is not valid/},
    {name: 'nothing', event: undefined, says: /The event is not valid/},
    {name: 'a text', event: 'text', says: /The event is not valid/},
    {name: 'no message', event: {id: '1', data: {subscription: 's'}}, says: /message/},
    {name: 'a message that is a text', event: {message: 'x'}, says: /message/},
    {name: 'data that are a list', event: {message: {...MESSAGE, data: ['x']}}, says: /message\.data/},
    {name: 'data that are not base64', event: {message: {...MESSAGE, data: '{"a":1}'}}, says: /base64/},
    {name: 'an attribute that is a number', event: {message: {attributes: {a: 1}}}, says: /attributes/},
  ];
  for (const {name, event, says} of cases)
    it(name, () => {
      assert.throws(
        () => readPush(event),
        (error: unknown) => error instanceof Rejected && says.test(error.message),
      );
      assert.match(pushId(event), /^(1|77|[0-9a-f]{64})$/);
    });
});

describe('the text and the time of a push', () => {
  it('are decoded from base64, and are empty without data', () => {
    const data = Buffer.from('{"action":"pause","run":"größe"}').toString('base64');
    assert.equal(readPush({message: {data}}).text, '{"action":"pause","run":"größe"}');
    assert.equal(readPush({message: {attributes: {}}}).text, '');
  });

  for (const [publishTime, published_at] of [
    ['2026-11-22T10:00:00Z', '2026-11-22T10:00:00.000Z'],
    ['2026-11-22T10:00:00.123456789Z', '2026-11-22T10:00:00.123Z'],
    ['2026-11-22T12:00:00.5+02:00', '2026-11-22T10:00:00.500Z'],
    ['noon', undefined],
    [undefined, undefined],
  ])
    it(`the publish time ${publishTime} becomes ${published_at}`, () => {
      assert.equal(readPush({message: {publishTime}}).published_at, published_at);
    });
});

describe('a notification of Cloud Storage', () => {
  const attributes = {
    ...{notificationConfig: 'projects/_/buckets/b/notificationConfigs/3', payloadFormat: 'JSON_API_V1'},
    ...{eventType: 'OBJECT_FINALIZE', bucketId: 'b', objectId: 'datasets/r/stream_000.jsonl'},
    ...{objectGeneration: '1700000000000000', eventTime: '2026-11-22T10:00:00.123456Z'},
  };
  const read = (changes: Record<string, string>) =>
    readNotification(readPush({message: {attributes: {...attributes, ...changes}}}));

  it('names its object in its attributes, also without a payload', () => {
    assert.deepEqual(read({}), {bucket: 'b', name: 'datasets/r/stream_000.jsonl'});
  });

  it('of another type names no new object', () => {
    for (const eventType of ['OBJECT_DELETE', 'OBJECT_METADATA_UPDATE', 'OBJECT_ARCHIVE'])
      assert.equal(read({eventType}), undefined);
  });

  it('with a bad attribute is rejected with the name of the attribute', () => {
    for (const [name, value] of Object.entries({objectId: '', objectGeneration: 'x', bucketId: ''}))
      assert.throws(
        () => read({[name]: value}),
        new RegExp(`notification of an object is not valid: .*${name}`),
      );
    assert.throws(() => readNotification(readPush({message: {}})), /eventType/);
  });
});
