import assert from 'node:assert/strict';
import {createRequire} from 'node:module';
import {dirname, join} from 'node:path';
import {DatabaseSync} from 'node:sqlite';
import {Firestore} from '@google-cloud/firestore';
import {loadSync, type MessageTypeDefinition} from '@grpc/proto-loader';
import {PassThroughClient} from 'google-auth-library';
import type {LocalCloud} from '../../emulator/cloud.ts';
import {put, Scratch, type Seen, tokenUrl} from '../support/machine/a-cloud.ts';
import {processes} from '../support/machine/home.ts';
import {until} from '../support/machine/until.ts';
import {needEmulators} from './emulators.ts';

type JobEvent = Seen &
  Record<'subject' | 'time' | 'document' | 'database' | 'project' | 'specversion', string>;

const LONG_TEXT = 'x'.repeat(100_000);

describe("A local cloud with Google's emulators @full", () => {
  const scratch = new Scratch();
  let cloud: LocalCloud;
  let firestore: Firestore;
  let seen: () => Seen[];
  const events = () => seen().filter(each => each.function === 'on-job') as JobEvent[];
  before(async function () {
    needEmulators(this);
    ({cloud, seen} = await scratch.cloudWithFunctions({google_emulators: true, jobs_collection: 'work'}));
    firestore = new Firestore({
      ...{projectId: cloud.project, databaseId: 'gleaner', ssl: false},
      host: cloud.firestore_endpoint ?? assert.fail(),
      authClient: new PassThroughClient(),
    });
  });
  after(async () => {
    await firestore?.terminate();
    await scratch.end();
  });

  it('starts on-job with the event of Eventarc for a new document, once for each document of the collection that the cloud names', async () => {
    const jobs = firestore.collection('work');
    await firestore.doc('jobs/one').create({});
    const {writeTime} = await jobs.doc('one').create({code: LONG_TEXT, priority: 3});
    await jobs.doc('one').update({priority: 4});
    await firestore.doc('runs/my-run').create({});
    await jobs.doc('two').create({});
    const [one, two] = await until('both events', () => (events().length > 1 ? events() : undefined));
    assert.ok(one && two);
    assert.deepEqual({...one, id: '', pid: 0, data: ''}, {
      ...{function: 'on-job', pid: 0, id: '', data: '', specversion: '1.0'},
      type: 'google.cloud.firestore.document.v1.created',
      source: `//firestore.googleapis.com/projects/${cloud.project}/databases/gleaner`,
      subject: 'documents/work/one',
      time: `${writeTime.toDate().toISOString().slice(0, 19)}.${String(writeTime.nanoseconds).padStart(9, '0')}Z`,
      dataschema:
        'https://github.com/googleapis/google-cloudevents/blob/main/proto/google/events/cloud/firestore/v1/data.proto',
      ...{document: 'work/one', database: 'gleaner', project: cloud.project},
      ...{location: 'us-central1', namespace: '(default)'},
    } as unknown as JobEvent);
    assert.equal(two.subject, 'documents/work/two');
    assert.notEqual(one.id, two.id);
    assert.deepEqual(fieldsIn(String(one.data)), {
      code: {stringValue: LONG_TEXT},
      priority: {integerValue: '3'},
    });
  });

  it('starts on-job twice for a new document, or never, where a fault says so', async () => {
    await cloud.fault('drop', 'document');
    await firestore.doc('work/lost').create({});
    const database = new DatabaseSync(join(cloud.dir, 'cloud.db'), {readOnly: true});
    const dropped = database.prepare('SELECT event FROM dropped_events');
    const lost = await until('the drop', () => dropped.get() as {event: string} | undefined);
    database.close();
    assert.equal(JSON.parse(lost.event).path, 'work/lost');
    await cloud.fault('clear', 'drop');
    await cloud.fault('double', 'document');
    await firestore.doc('work/twice').create({});
    const copies = () => events().filter(({document}) => document === 'work/twice');
    const both = await until('both copies', copies, found => found.length === 2);
    assert.equal(new Set(both.map(({id}) => id)).size, 1);
    assert.deepEqual(
      new Set(events().map(({document}) => document)),
      new Set(['work/one', 'work/two', 'work/twice']),
    );
  });

  const served = (host: string) =>
    processes().find(({pid, pgid, args}) => pid === pgid && args.endsWith(`--port=${host.split(':')[1]}`));

  it("publishes notifications on Google's Pub/Sub, and passes the requests of gcloud on", async () => {
    const call = async (path: string, body?: object) => {
      const init = body && {method: 'POST', body: JSON.stringify(body)};
      const answer = await fetch(`${tokenUrl(cloud)}/v1/projects/${cloud.project}/${path}`, init);
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

/** Fields of the document in DocumentEventData, whose first field holds the document. */
function fieldsIn(data: string): object {
  const bytes = Buffer.from(data, 'base64');
  assert.equal(bytes[0], 10);
  const length = bytes.subarray(1).findIndex(each => each < 128) + 1;
  const client = createRequire(import.meta.url).resolve('@google-cloud/firestore/package.json');
  const includeDirs = [join(dirname(client), 'build', 'protos')];
  const types = loadSync('google/firestore/v1/document.proto', {includeDirs, longs: String});
  const type = types['google.firestore.v1.Document'] as MessageTypeDefinition<object, {fields: object}>;
  return type.deserialize(bytes.subarray(1 + length)).fields;
}
