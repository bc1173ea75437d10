import assert from 'node:assert/strict';
import {PubSub} from '@google-cloud/pubsub';
import type {LocalCloud} from '../../emulator/cloud.ts';
import {Scratch, type Seen, tokenUrl} from '../support/machine/a-cloud.ts';
import {until} from '../support/machine/until.ts';

describe('Pub/Sub of the local cloud', () => {
  const scratch = new Scratch(after);
  let cloud: LocalCloud;
  let seen: () => Seen[];
  before(async () => {
    ({cloud, seen} = await scratch.cloudWithFunctions());
  });

  describe('through @google-cloud/pubsub', () => {
    let pubsub: PubSub;
    before(() => {
      process.env.PUBSUB_EMULATOR_HOST = cloud.pubsub_endpoint;
      pubsub = new PubSub({projectId: cloud.project});
    });
    /** Call options with the token, because Google's client sends no credentials to an emulator. */
    const withToken = () => ({otherArgs: {headers: {authorization: `Bearer ${cloud.token}`}}});
    const topic = (name: string) => pubsub.topic(name, {gaxOpts: withToken()});
    after(async () => {
      delete process.env.PUBSUB_EMULATOR_HOST;
      await pubsub.close();
    });

    it('publishes data and attributes of a message', async () => {
      const id = await topic('control').publishMessage({json: {ä: '\u{1f600}'}, attributes: {who: 'me'}});
      const event = await until('the message arrived', () => seen().find(candidate => candidate.id === id));
      assert.equal(event.text, '{"ä":"\u{1f600}"}');
      assert.deepEqual(event.data.message.attributes, {who: 'me'});
    });

    it('publishes bytes that are not text', async () => {
      const data = Buffer.from([0, 255, 128, 10]);
      const id = await topic('tpu').publishMessage({data});
      const event = await until('the message arrived', () => seen().find(candidate => candidate.id === id));
      assert.equal(event.data.message.data, data.toString('base64'));
    });

    it('lists and gets the topics of the triggers, and only these', async () => {
      const [topics] = await pubsub.getTopics({gaxOpts: withToken()});
      const names = topics.map(topic => topic.name);
      const expected = ['control', 'objects', 'tick', 'tpu'].map(
        name => `projects/gleaner-local/topics/${name}`,
      );
      assert.deepEqual(names, expected);
      const [found] = await pubsub.topic('control').getMetadata(withToken());
      assert.equal(found.name, expected[0]);
      await assert.rejects(pubsub.topic('weather').getMetadata(withToken()), {code: 5});
      await assert.rejects(topic('weather').publishMessage({data: Buffer.from('x')}), {code: 5});
    });

    it('creates a topic without a function', async () => {
      await pubsub.createTopic('silence', withToken());
      assert.match(await topic('silence').publishMessage({data: Buffer.from('x')}), /^\d+$/);
      await assert.rejects(pubsub.createTopic('silence', withToken()), {code: 6});
    });
  });

  describe('over REST', () => {
    const publish = (topic: string, body: string, project = cloud.project) =>
      fetch(`${tokenUrl(cloud)}/v1/projects/${project}/topics/${topic}:publish`, {method: 'POST', body});
    const cases: {name: string; topic?: string; body: string; status?: number; says: RegExp}[] = [
      {
        name: 'an unknown topic',
        topic: 'weather',
        body: '{"messages":[{"data":"eA=="}]}',
        status: 404,
        says: /weather.*control, .*tpu/,
      },
      {name: 'no messages', body: '{}', says: /1 to 1000 messages/},
      {name: 'an empty message', body: '{"messages":[{}]}', says: /empty/},
      {name: 'data that is not base64', body: '{"messages":[{"data":"{}"}]}', says: /base64/},
      {name: 'data that is a number', body: '{"messages":[{"data":7}]}', says: /data/},
      {name: 'a number for an attribute', body: '{"messages":[{"attributes":{"a":1}}]}', says: /attributes/},
      {name: 'a message that is not an object', body: '{"messages":["x"]}', says: /object/},
      {name: 'a body that is not JSON', body: '{"messages"', says: /Failed to parse/},
      {
        name: 'a message over 10 MB',
        body: `{"messages":[{"data":"${'A'.repeat(14_000_000)}"}]}`,
        says: /bucket/,
      },
    ];
    for (const {name, topic = 'control', body, status = 400, says} of cases) {
      it(`answers ${status} to ${name}`, async () => {
        const answer = await publish(topic, body);
        assert.equal(answer.status, status);
        const {error} = (await answer.json()) as {error: {message: string}};
        assert.match(error.message, says);
      });
    }

    it('publishes no message of a request with one invalid message', async () => {
      const answer = await publish('control', '{"messages":[{"data":"Z29vZA=="},{"data":"!"}]}');
      assert.equal(answer.status, 400);
      const [sentinel] = (
        (await (await publish('control', '{"messages":[{"data":"ZW5k"}]}')).json()) as {messageIds: string[]}
      ).messageIds;
      await until('the next message arrived', () => seen().some(event => event.id === sentinel));
      assert.ok(!seen().some(event => event.text === 'good'));
    });

    it('answers 404 to another project', async () => {
      assert.equal((await publish('control', '{"messages":[{"data":"eA=="}]}', 'other')).status, 404);
    });
  });
});
