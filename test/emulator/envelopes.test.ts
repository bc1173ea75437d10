import assert from 'node:assert/strict';
import {publish, put, Scratch, type Seen, tokenUrl} from '../support/machine/a-cloud.ts';
import {until} from '../support/machine/until.ts';

const MESSAGE_TYPE = 'google.cloud.pubsub.topic.v1.messagePublished';

const nameOf = ({data}: Seen) => data.message.attributes.objectId;

describe('The push subscriptions of the functions', () => {
  const scratch = new Scratch(afterEach);

  it('sends a notification to `on-object` for each new or overwritten object, as Cloud Storage does', async () => {
    const {cloud, seen} = await scratch.cloudWithFunctions();
    const objectId = 'datasets/ä run/"stream" 000%.jsonl';
    await put(cloud, objectId, 'hello');
    await put(cloud, objectId, 'hello again');
    await until('both events arrived', () => seen().length === 2);
    const [first, second] = seen().toSorted((one, other) => one.at - other.at) as [Seen, Seen];
    const project = `//pubsub.googleapis.com/projects/${cloud.project}`;
    assert.deepEqual([first.source, first.type], [`${project}/topics/objects`, MESSAGE_TYPE]);
    const {objectGeneration, eventTime, ...attributes} = first.data.message.attributes;
    assert.deepEqual(attributes, {
      notificationConfig: `projects/_/buckets/${cloud.bucket}/notificationConfigs/1`,
      ...{eventType: 'OBJECT_FINALIZE', payloadFormat: 'JSON_API_V1', bucketId: cloud.bucket, objectId},
    });
    assert.ok(Number(second.data.message.attributes.objectGeneration) > Number(objectGeneration));
    assert.ok(Math.abs(Date.parse(eventTime ?? '') - Date.now()) < 60_000);
    const {bucket, name, size, crc32c, generation} = JSON.parse(first.text);
    assert.deepEqual(
      {bucket, name, size, crc32c, generation},
      {bucket: cloud.bucket, name: objectId, size: '5', crc32c: 'mnG7TA==', generation: objectGeneration},
    );
  });

  it('sends no notification of an object outside the prefixes', async () => {
    const {cloud, seen} = await scratch.cloudWithFunctions();
    for (const name of ['logs/a', 'bundles/b', 'dataset/c', 'activations', 'x/datasets/d'])
      await put(cloud, name);
    await put(cloud, 'activations/my-run/e');
    await until('the notification arrived', () => seen().length > 0);
    assert.deepEqual(seen().map(nameOf), ['activations/my-run/e']);
  });

  it('sends no event for a failed upload', async () => {
    const {cloud, seen} = await scratch.cloudWithFunctions();
    const bad = await fetch(
      `${tokenUrl(cloud)}/upload/storage/v1/b/${cloud.bucket}/o?uploadType=media&name=datasets/bad`,
      {method: 'POST', body: 'x', headers: {'x-goog-hash': 'crc32c=AAAAAA=='}},
    );
    assert.equal(bad.status, 400);
    await put(cloud, 'datasets/good');
    await until('the event of the good object arrived', () => seen().length > 0);
    assert.deepEqual(seen().map(nameOf), ['datasets/good']);
  });

  it('sends each message to the function of its topic, in the format of Pub/Sub', async () => {
    const {cloud, seen} = await scratch.cloudWithFunctions();
    const [one, two] = await publish(cloud, 'control', '{"n":1}', '{"n":2}');
    const [three] = await publish(cloud, 'tpu', '{"n":3}');
    await until('three events arrived', () => seen().length === 3);
    const got = seen().map(({function: name, id, text}) => `${name} ${id} ${text}`);
    assert.deepEqual(
      got.toSorted(),
      [`on-control ${one} {"n":1}`, `on-control ${two} {"n":2}`, `on-tpu ${three} {"n":3}`].toSorted(),
    );
    const [event] = seen() as [Seen];
    assert.match(
      event.source,
      /^\/\/pubsub\.googleapis\.com\/projects\/gleaner-local\/topics\/(control|tpu)$/,
    );
    assert.equal(event.type, MESSAGE_TYPE);
    const {messageId, publishTime, attributes} = event.data.message;
    assert.deepEqual([messageId, attributes], [event.id, {}]);
    assert.ok(Math.abs(Date.parse(publishTime) - Date.now()) < 60_000);
  });

  it('pushes a message without data as it is, which the framework cannot make an event', async () => {
    const {cloud, seen} = await scratch.cloudWithFunctions();
    const answer = await fetch(`${tokenUrl(cloud)}/v1/projects/${cloud.project}/topics/control:publish`, {
      method: 'POST',
      body: JSON.stringify({messages: [{attributes: {by: 'hand'}, orderingKey: 'k'}]}),
    });
    const [id] = ((await answer.json()) as {messageIds: string[]}).messageIds;
    await until('the message arrived', () => seen().length === 1);
    const [{body} = assert.fail()] = seen();
    const {message, subscription, deliveryAttempt} = body as Record<string, unknown>;
    const {publishTime, publish_time, ...others} = message as Record<string, unknown>;
    assert.deepEqual(
      {subscription, deliveryAttempt, ...others, isSame: publishTime === publish_time},
      {
        ...{subscription: `projects/${cloud.project}/subscriptions/gleaner-on-control`, deliveryAttempt: 1},
        ...{data: '', attributes: {by: 'hand'}, orderingKey: 'k', messageId: id, message_id: id},
        isSame: true,
      },
    );
  });
});
