import assert from 'node:assert/strict';
import {type ChildProcess, fork} from 'node:child_process';
import {once} from 'node:events';
import {fileURLToPath} from 'node:url';
import {PubSub} from '@google-cloud/pubsub';
import type {Cloud} from '../../client/cloud/cloud.ts';
import {publish} from '../../client/cloud/send-message.ts';
import {RETRY, type Subscription, subscriptionsOf} from '../../emulator/functions/subscriptions.ts';
import {readTriggers} from '../../emulator/functions/triggers.ts';
import {GooglePubsub} from '../../emulator/google/pubsub.ts';
import {pushTokenOf} from '../../emulator/http/guard.ts';
import {DEFAULT_DEPLOYMENT} from '../../shared/domain/deployment.ts';
import {openBus} from '../../shared/google/bus.ts';
import {functionsModule, readLines, Scratch, type Seen, triggers} from '../support/machine/a-cloud.ts';
import {until} from '../support/machine/until.ts';
import {describeOnEmulator} from './emulators.ts';

/** The cloud of a command whose Pub/Sub answers at `host`. */
function cloudAt(host: string): Cloud {
  const where = {project: 'bus', deployment: DEFAULT_DEPLOYMENT, token: undefined};
  return {connection: {...where, storage_endpoint: `http://${host}`, pubsub_endpoint: host}} as Cloud;
}

const HOST = fileURLToPath(new URL('../../emulator/functions/function-host.ts', import.meta.url));
/** The smallest number of attempts that Pub/Sub accepts. */
const FEW = {...RETRY, max_attempts: 5};

describeOnEmulator('pubsub', "Google's Pub/Sub emulator", host => {
  describe('Bus: Pub/Sub', () => {
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

  describe('The push to the functions', () => {
    const project = 'push-project';
    const scratch = new Scratch(after);
    let pubsub: GooglePubsub;
    let child: ChildProcess;
    let ports: Record<string, number>;
    let file: string;
    const subscription = (name: string): Subscription =>
      subscriptionsOf(readTriggers(triggers), 'gleaner').find(each => each.function === name) ??
      assert.fail();
    const seen = (): Seen[] => readLines(file);

    async function startHost(): Promise<void> {
      const env = {...process.env, SEEN: file, GLEANER_LOCAL_TOKEN: 'secret'};
      const names = ['on-control', 'on-tick', 'on-tpu'];
      child = fork(HOST, [functionsModule, ...names], {env, stdio: ['ignore', 'ignore', 'ignore', 'ipc']});
      [{ports}] = (await once(child, 'message')) as [{ports: Record<string, number>}];
      for (const name of names) await pubsub.connect(subscription(name), ports[name] ?? 0, FEW);
    }
    before(async () => {
      file = `${scratch.dir()}/seen.jsonl`;
      pubsub = new GooglePubsub({host: host(), project, push_token: pushTokenOf('secret')});
      await pubsub.createTopics(['control', 'tick', 'tpu'], ['gleaner']);
      await startHost();
    });
    after(() => child.kill('SIGKILL'));

    const publish = (topic: string, text: string) =>
      pubsub.publish(topic, {data: Buffer.from(text).toString('base64'), attributes: {by: 'test'}});
    const withText = (text: string) => seen().filter(event => event.text === text);

    it('arrives as a CloudEvent with its id, topic, attributes and publish time', async () => {
      await publish('control', '{"n":1}');
      const [event] = await until('the push', () => (withText('{"n":1}').length > 0 ? seen() : undefined));
      assert.equal(event?.source, `//pubsub.googleapis.com/projects/${project}/topics/control`);
      assert.equal(event?.function, 'on-control');
      const {messageId, publishTime, attributes} = event?.data.message ?? assert.fail();
      assert.deepEqual([messageId, attributes], [event?.id, {by: 'test'}]);
      assert.ok(Math.abs(Date.parse(publishTime) - Date.now()) < 60_000);
    });

    it('has a body of the same fields as the push of the local cloud', async () => {
      await pubsub.publish('control', {data: '', attributes: {by: 'hand'}});
      const {body} = await until('the push', () => seen().find(event => event.body !== undefined));
      const {message, ...others} = body as {message: object};
      assert.deepEqual(others, {subscription: `projects/${project}/subscriptions/gleaner-on-control`});
      const fields = ['attributes', 'messageId', 'message_id', 'publishTime', 'publish_time'];
      const known = Object.keys(message).filter(name => name !== 'data');
      assert.deepEqual(known.toSorted(), fields);
    });

    it('is refused without the token of the push endpoint, and with the token of the cloud in the query', async () => {
      const before = seen().length;
      const body = JSON.stringify({message: {data: 'e30=', messageId: '1'}, subscription: 's'});
      for (const search of ['', '?token=', '?token=secret', `?token=${pushTokenOf('other')}`]) {
        const url = `http://127.0.0.1:${ports['on-control']}/projects/${project}/topics/control${search}`;
        const headers = {'content-type': 'application/json'};
        assert.equal((await fetch(url, {method: 'POST', headers, body})).status, 401, search);
      }
      assert.equal(seen().length, before);
    });

    it('follows the functions to the ports of a new host', async () => {
      child.kill('SIGKILL');
      await publish('control', '"later"');
      await startHost();
      await until('the push', () => withText('"later"').length > 0);
    });

    it('repeats a message that a function refuses, while others arrive', async () => {
      await publish('tpu', '"refuse"');
      await publish('tpu', '"take"');
      await until('three attempts', () => withText('"refuse"').length >= 3);
      assert.equal(withText('"take"').length, 1);
    });

    it('ends in the dead letters after the last refused attempt', async () => {
      const letters = () => pullDead(host(), project);
      const [letter] = await until('the dead letter', letters);
      assert.equal(Buffer.from(letter?.data ?? '', 'base64').toString(), '"refuse"');
      assert.equal(letter?.attributes.CloudPubSubDeadLetterSourceSubscription, 'gleaner-on-tpu');
      assert.ok(withText('"refuse"').length >= FEW.max_attempts);
    });
  });
});

type Letter = {data: string; attributes: Record<string, string>};

async function pullDead(host: string, project: string): Promise<Letter[] | undefined> {
  const answer = await fetch(`http://${host}/v1/projects/${project}/subscriptions/gleaner-dead:pull`, {
    method: 'POST',
    headers: {'content-type': 'application/json'},
    body: JSON.stringify({maxMessages: 10, returnImmediately: true}),
  });
  const {receivedMessages} = (await answer.json()) as {receivedMessages?: {message: Letter}[]};
  return receivedMessages?.map(({message}) => message);
}
