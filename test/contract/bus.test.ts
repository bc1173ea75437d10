import assert from 'node:assert/strict';
import {PubSub} from '@google-cloud/pubsub';
import type {Cloud} from '../../cli/cloud/cloud.ts';
import {publish} from '../../cli/cloud/send-message.ts';
import {DEFAULT_DEPLOYMENT} from '../../shared/domain/deployment.ts';
import {openBus} from '../../shared/google/bus.ts';
import {describeOnEmulator} from './emulators.ts';

/** The cloud of a command whose Pub/Sub answers at `host`. */
function cloudAt(host: string): Cloud {
  const where = {project: 'bus', deployment: DEFAULT_DEPLOYMENT, token: undefined};
  return {connection: {...where, storage_endpoint: `http://${host}`, pubsub_endpoint: host}} as Cloud;
}

describeOnEmulator('pubsub', 'Bus: Pub/Sub', host => {
  let pubsub: PubSub;

  before(async () => {
    process.env.PUBSUB_EMULATOR_HOST = host();
    pubsub = new PubSub({projectId: 'bus'});
    await pubsub.createTopic('control');
    await pubsub.topic('control').createSubscription('all');
  });

  after(async () => {
    delete process.env.PUBSUB_EMULATOR_HOST;
    await pubsub?.close();
  });

  it('a message of a function or a command arrives as JSON, under the id that its publisher got', async () => {
    const bus = openBus({project: 'bus'});
    const messages = [{action: 'pause', run: 'my-run'}, {}, {text: 'é\u{1f600}', list: [1, null, {}]}];
    const ids = [];
    for (const message of messages) ids.push(await bus.publish('control', message));
    for (const message of messages) ids.push(await publish(cloudAt(host()), 'control', message));
    assert.equal(new Set(ids).size, 2 * messages.length);

    const received = new Map<string, unknown>();
    const subscription = pubsub.subscription('all');
    await new Promise<void>((resolve, reject) => {
      subscription.on('error', reject);
      subscription.on('message', message => {
        message.ack();
        received.set(message.id, JSON.parse(message.data.toString()));
        if (received.size === ids.length) resolve();
      });
    });
    await subscription.close();
    assert.deepEqual(
      ids.map(id => received.get(id)),
      [...messages, ...messages],
    );
  });

  it('a message of another deployment than the default one goes to a topic with its name', async () => {
    const [topic] = await pubsub.createTopic('team-a-control');
    const [subscription] = await topic.createSubscription('team-a');
    const id = await openBus({project: 'bus', deployment: 'team-a'}).publish('control', {a: 1});
    const arrived = await new Promise<string>((resolve, reject) => {
      subscription.on('error', reject);
      subscription.on('message', message => {
        message.ack();
        resolve(message.id);
      });
    });
    await subscription.close();
    assert.equal(arrived, id);
  });

  it('an error names the missing topic and its remedy', async () => {
    await assert.rejects(
      openBus({project: 'bus'}).publish('no-such-topic', {}),
      /publish to no-such-topic: .*Terraform/,
    );
    await assert.rejects(publish(cloudAt(host()), 'exec', {}), /publish to exec: .*Terraform/);
  });

  it('a publish fails when Pub/Sub does not answer', async () => {
    const lost = publish(cloudAt('127.0.0.1:2'), 'control', {});
    await assert.rejects(lost, /Failed to publish to control: no answer: .*ECONNREFUSED/);
    process.env.PUBSUB_EMULATOR_HOST = '127.0.0.1:9';
    try {
      const bus = openBus({project: 'bus', deadline_ms: 2000});
      await assert.rejects(bus.publish('control', {}), /Failed to publish to control: .*ECONNREFUSED/);
    } finally {
      process.env.PUBSUB_EMULATOR_HOST = host();
    }
  });
});
