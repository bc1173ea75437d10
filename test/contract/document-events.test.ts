import assert from 'node:assert/strict';
import {createRequire} from 'node:module';
import {dirname, join} from 'node:path';
import {DatabaseSync} from 'node:sqlite';
import {Firestore} from '@google-cloud/firestore';
import {loadSync, type MessageTypeDefinition} from '@grpc/proto-loader';
import {PassThroughClient} from 'google-auth-library';
import type {LocalCloud} from '../../emulator/cloud.ts';
import {Scratch, type Seen} from '../emulator/a-cloud.ts';
import {until} from '../support/until.ts';
import {needEmulators} from './emulators.ts';

type JobEvent = Seen &
  Record<'subject' | 'time' | 'document' | 'database' | 'project' | 'specversion', string>;

const LONG_TEXT = 'x'.repeat(100_000);

describe("A new document on Google's Firestore emulator @full", () => {
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

  it('starts on-job with the event of Eventarc, once for each document of the collection that the cloud names', async () => {
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

  it('starts on-job twice, or never, where a fault says so', async () => {
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
