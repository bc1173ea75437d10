/**
 * Functions of two releases side by side. `test/fixtures/earlier-release.json` has the documents and objects that the code of its commit
 * wrote in the middle of a run, with a job, a second pool and messages of people. `test/fixtures/earlier-schemas.json` has the schemas with which
 * that commit reads each kind of document, as JSON Schemas: `z.toJSONSchema(schema, {io: 'input'})`.
 */
import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import {z} from 'zod';
import {isOfKind} from '../../cli/build/reference/stored-schemas.ts';
import {RELEASE} from '../../shared/contracts/config.ts';
import {
  attemptRecords,
  controlRecords,
  eventRecords,
  poolRecords,
  runRecords,
  shardRecords,
  streamRecords,
  workerRecords,
  zoneRecords,
} from '../../shared/control-plane/documents/documents.ts';
import {jobRecords} from '../../shared/control-plane/documents/job-documents.ts';
import {paths} from '../../shared/domain/names.ts';
import type {Document, ObjectInfo, Stored} from '../../shared/ports.ts';
import {aRun, aStream, aWorker} from '../support/builders.ts';
import {aBusyWorld, everyDocument, finishBusyWorld} from '../support/busy-world.ts';
import {World} from '../support/control-plane-harness.ts';
import {putDocuments} from '../support/put-documents.ts';
import {wholeStore} from '../support/whole-store.ts';

type Earlier = {
  now_ms: number;
  documents: Record<string, Document>;
  objects: {name: string; text: string; info: ObjectInfo}[];
};

const read = (): Earlier =>
  JSON.parse(readFileSync(new URL('../fixtures/earlier-release.json', import.meta.url), 'utf8'));

/** The records of each collection. */
const RECORDS: {[collection: string]: {parse(path: string, data: Document): object}} = {
  ...{
    pools: poolRecords,
    runs: runRecords,
    streams: streamRecords,
    workers: workerRecords,
    zones: zoneRecords,
  },
  ...{attempts: attemptRecords, control: controlRecords, events: eventRecords, shards: shardRecords},
};

/** A world in which the functions of this release find the state of the earlier one. Its TPUs are lost. */
async function upgraded(): Promise<World> {
  const {now_ms, documents, objects} = read();
  const world = new World();
  world.now = now_ms;
  await putDocuments(world.store, documents);
  for (const {name, text, info} of objects) world.objects.put(name, text, info.metadata, info);
  return world;
}

describe('The documents of an earlier release', () => {
  const {documents} = read();
  for (const [path, data] of Object.entries(documents)) {
    const collection = path.split('/').at(-2) ?? '';
    const records = RECORDS[collection];
    if (records === undefined) continue;
    it(`are read whole: ${path}`, () => {
      const parsed = records.parse(path, data) as Document;
      // This release may add fields, and changes and drops none.
      assert.partialDeepStrictEqual(parsed, data);
    });
  }

  it('are read whole: the job', async () => {
    const world = await upgraded();
    const job = await jobRecords.get(world.deps, world.store, 'my-job');
    assert.deepEqual(
      [job?.status, job?.challenge_number, job?.result],
      ['completed', 42, documents['jobs/my-job']?.result],
    );
  });

  it('are continued: every sample is stored once, and what people set stays', async () => {
    const world = await upgraded();
    await world.untilAsleep();
    for (const {name, text} of read().objects.filter(each => each.name.startsWith('datasets/')))
      await world.assertStoredOnce('my-run', /stream_(\d+)/.exec(name)?.[1] ?? '', text);
    const run = await world.run('my-run');
    assert.deepEqual(
      [run?.status, run?.streams_completed, run?.priority, run?.preemptions],
      ['completed', 3, 3, null],
    );
    const tpu = await world.store.get('pools/tpu');
    assert.deepEqual([tpu?.workers_per_zone, tpu?.budget_usd], [2, 50]);
  });
});

describe('The documents of this release', () => {
  /** Kinds of tasks that the earlier release skips with an error in its log. */
  const SKIPPED = ['tasks/expire', 'tasks/prices'];

  it('name this release, and are read by the earlier one: each kind, with everything at work and at its end', async () => {
    const {schemas} = JSON.parse(
      readFileSync(new URL('../fixtures/earlier-schemas.json', import.meta.url), 'utf8'),
    );
    const earlier = new Map<string, z.ZodType>(
      Object.entries(schemas).map(([kind, schema]) => [
        kind,
        z.fromJSONSchema(schema as z.core.JSONSchema.JSONSchema),
      ]),
    );
    const world = await aBusyWorld();
    const found = await everyDocument(world);
    await finishBusyWorld(world);
    found.push(...(await everyDocument(world)));
    // Each key of `prices/chips` is the name of a price.
    const unnamed = found.filter(({path, data}) => path !== paths.prices() && data.release !== RELEASE);
    assert.deepEqual(unnamed, []);
    const unread = found.flatMap(({path, data}) => {
      const kind = [...earlier.keys()].find(each => isOfKind(path, each));
      const parsed = kind === undefined ? undefined : earlier.get(kind)?.safeParse(data);
      return parsed?.success === false ? [`${path}: ${parsed.error.message}`] : [];
    });
    assert.deepEqual(
      unread.filter(text => !SKIPPED.some(path => text.startsWith(path))),
      [],
    );
    const kinds = [...earlier.keys()].filter(kind => !found.some(({path}) => isOfKind(path, kind)));
    assert.deepEqual(kinds, []);
  });
});

describe('The documents of a later release', () => {
  /** A field that a later release adds to every document. */
  const LATER = {later: {since: 'the next release'}};
  const isKept = ({path}: Stored) => /^(pools|runs|workers|zones)\/[^/]+$|\/streams\/\d+$/.test(path);

  it('keep the fields that this release does not know, through the work of a whole run', async () => {
    const world = await upgraded();
    const marked = (await wholeStore(world)).filter(isKept);
    assert.ok(marked.length > 8, String(marked.length));
    await putDocuments(
      world.store,
      Object.fromEntries(marked.map(({path, data}) => [path, {...data, ...LATER}])),
    );
    await world.untilAsleep();
    assert.equal((await world.run('my-run'))?.status, 'completed');
    const lost = [];
    for (const {path} of marked) if (!(await world.store.get(path))?.later) lost.push(path);
    assert.deepEqual(lost, []);
  });

  it('with an unknown status are left as they are, and stop no other document', async () => {
    const world = await upgraded();
    const path = 'runs/my-run/streams/001';
    const data = {...(await world.store.get(path)), status: 'archived'};
    await putDocuments(world.store, {[path]: data});
    await world.minutes(20);
    assert.deepEqual(await world.store.get(path), data);
    assert.equal((await world.stream('my-run', '000'))?.status, 'completed');
  });
});

describe('An agent of an earlier release', () => {
  it('gets no lease and is told to end, because it has no rights in the bucket', async () => {
    const world = new World();
    await putDocuments(world.store, {
      'workers/tpu-us-central1-a-0': {...aWorker({phase: 'idle'})},
      'runs/my-run': {...aRun({streams_pending: 1})},
      'runs/my-run/streams/007': {...aStream()},
    });
    const before = await wholeStore(world);
    const ask = {action: 'lease', worker: 'tpu-us-central1-a-0', incarnation: 2, host: 0, loaded: null};
    const {status, body} = await world.api(ask);
    assert.deepEqual([status, body.action], [200, 'exit']);
    assert.match(String(body.reason), /of a release without tokens of leases/);
    assert.deepEqual(await wholeStore(world), before);
    assert.equal((await world.api({...ask, token: true})).body.action, 'work');
  });
});
