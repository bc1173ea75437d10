import assert from 'node:assert/strict';
import {type ChildProcess, fork} from 'node:child_process';
import {once} from 'node:events';
import {fileURLToPath} from 'node:url';
import {RETRY, type Subscription, subscriptionsOf} from '../../emulator/functions/subscriptions.ts';
import {readTriggers} from '../../emulator/functions/triggers.ts';
import {GooglePubsub} from '../../emulator/google/pubsub.ts';
import {pushTokenOf} from '../../emulator/http/guard.ts';
import {functionsModule, readLines, Scratch, type Seen, triggers} from '../emulator/a-cloud.ts';
import {until} from '../support/until.ts';
import {describeOnEmulator} from './emulators.ts';

const HOST = fileURLToPath(new URL('../../emulator/functions/function-host.ts', import.meta.url));
/** The smallest number of attempts that Pub/Sub accepts. */
const FEW = {...RETRY, max_attempts: 5};

describeOnEmulator('pubsub', "The push of Google's Pub/Sub emulator to the functions", emulator => {
  const project = 'push-project';
  const scratch = new Scratch();
  let pubsub: GooglePubsub;
  let child: ChildProcess;
  let ports: Record<string, number>;
  let file: string;
  const subscription = (name: string): Subscription =>
    subscriptionsOf(readTriggers(triggers), 'gleaner').find(each => each.function === name) ?? assert.fail();
  const seen = (): Seen[] => readLines(file);

  async function host(): Promise<void> {
    const env = {...process.env, SEEN: file, GLEANER_LOCAL_TOKEN: 'secret'};
    const names = ['on-control', 'on-tick', 'on-tpu'];
    child = fork(HOST, [functionsModule, ...names], {env, stdio: ['ignore', 'ignore', 'ignore', 'ipc']});
    [{ports}] = (await once(child, 'message')) as [{ports: Record<string, number>}];
    for (const name of names) await pubsub.connect(subscription(name), ports[name] ?? 0, FEW);
  }
  before(async () => {
    file = `${scratch.dir()}/seen.jsonl`;
    pubsub = new GooglePubsub({host: emulator(), project, push_token: pushTokenOf('secret')});
    await pubsub.createTopics(['control', 'tick', 'tpu'], ['gleaner']);
    await host();
  });
  after(async () => {
    child.kill('SIGKILL');
    await scratch.end();
  });

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
    await host();
    await until('the push', () => withText('"later"').length > 0);
  });

  it('repeats a message that a function refuses, while others arrive', async () => {
    await publish('tpu', '"refuse"');
    await publish('tpu', '"take"');
    await until('three attempts', () => withText('"refuse"').length >= 3);
    assert.equal(withText('"take"').length, 1);
  });

  it('ends in the dead letters after the last refused attempt', async () => {
    const letters = () => pullDead(emulator(), project);
    const [letter] = await until('the dead letter', letters);
    assert.equal(Buffer.from(letter?.data ?? '', 'base64').toString(), '"refuse"');
    assert.equal(letter?.attributes.CloudPubSubDeadLetterSourceSubscription, 'gleaner-on-tpu');
    assert.ok(withText('"refuse"').length >= FEW.max_attempts);
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
