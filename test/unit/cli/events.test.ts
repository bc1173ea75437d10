import assert from 'node:assert/strict';
import {openFilter} from '../../../client/events/filter.ts';
import {readerOf} from '../../../client/events/read.ts';
import {styleOf} from '../../../client/events/timeline.ts';
import type {Document, Store} from '../../../shared/ports/ports.ts';
import {aLeasedStream, aRun, at, aWorker} from '../../world/builders.ts';
import {aStore, putDocuments} from '../../world/scenes/put-documents.ts';

const TPU = 'tpu-us-central1-a-0';
const event = (seconds: number, more: Document = {}) => ({
  ...{kind: 'run', text: `event ${seconds}`, at: at(seconds), expire_at: at(seconds + 9)},
  ...more,
});

describe('The events of the timeline', () => {
  let store: Store;
  const write = (documents: Record<string, object>) => putDocuments(store, documents);
  const reader = async (run?: string, kind?: string) => readerOf(store, await openFilter(store, run, kind));
  const texts = (entries: {text: string}[]) => entries.map(({text}) => text);

  beforeEach(async () => {
    store = await aStore({
      'runs/my-run': aRun({created_at: at(2)}),
      'runs/my-run/streams/007': aLeasedStream(),
      [`workers/${TPU}`]: aWorker(),
      'events/d': event(1, {worker: TPU, kind: 'worker'}),
      'events/c': event(3, {worker: TPU, kind: 'worker', run: 'my-run'}),
      'events/j': event(5.5, {worker: TPU, kind: 'worker', run: 'other'}),
      'events/b': event(4, {run: 'other'}),
      'events/a': event(5, {run: 'my-run'}),
      'events/e': event(5, {run: 'my-run', kind: 'shard', text: 'shard'}),
      'events/f': event(6, {worker: 'tpu-us-east5-b-0', kind: 'worker'}),
    });
  });
  afterEach(() => store.close());

  it('the events of the timeline are in the order of time, a shard before the end of its stream', async () =>
    assert.deepEqual(texts(await (await reader()).newest(6)), [
      'event 3',
      'event 4',
      'shard',
      'event 5',
      'event 5.5',
      'event 6',
    ]));

  it('the events of the timeline of a run are its own and those of its TPUs while it pays for them', async () =>
    assert.deepEqual(texts(await (await reader('my-run')).newest(9)), ['event 3', 'shard', 'event 5']));

  it('the events of the timeline of a kind are those alone', async () =>
    assert.deepEqual(texts(await (await reader(undefined, 'shard')).newest(9)), ['shard']));

  it('the events of the timeline come once each, and new ones after the first read', async () => {
    const events = await reader();
    assert.deepEqual(texts(await events.newest(1)), ['event 6']);
    assert.deepEqual(await events.next(), []);
    await write({'events/g': event(8), 'events/h': event(7)});
    assert.deepEqual(texts(await events.next()), ['event 7', 'event 8']);
    await write({'events/i': event(7.5)});
    assert.deepEqual(texts(await events.next()), ['event 7.5']);
    assert.deepEqual(await events.next(), []);
  });

  it('the events of the timeline are read page by page', async () => {
    const many = Array.from({length: 700}, (_, index) => [
      `events/m${index}`,
      event(100 + Math.floor(index / 3)),
    ]);
    await write(Object.fromEntries(many));
    assert.equal((await (await reader()).newest(650)).length, 650);
    assert.deepEqual(texts(await (await reader('my-run')).newest(9)), ['event 3', 'shard', 'event 5']);
  });

  it('the events of the timeline leave out a document with an invalid field', async () => {
    await write({
      'events/x': event(9, {text: 7}),
      'events/y': {...event(9), at: 'zzz'},
      'events/z': event(9, {run: 7, worker: null}),
    });
    assert.deepEqual(texts(await (await reader()).newest(2)), ['event 6', 'event 9']);
  });

  it('the events of the timeline of an unknown run are near names', () =>
    assert.rejects(reader('my-rum'), /There is no run "my-rum".*did you mean "my-run"\?/));
});

describe('The colour of an event', () => {
  for (const [text, style] of [
    [`${TPU} is lost: it was preempted; deleting it`, 'red'],
    [`${TPU} is wanted: creating it, incarnation 2`, 'green'],
    [`${TPU} works on my-run/007 from sample 12`, ['bold', 'green']],
    [`${TPU} works on my-run/007 from sample 0`, undefined],
    ['Stream my-run/007 is complete', 'green'],
    ['Run my-run is completed', ['bold', 'green']],
    ['Run my-run is paused: its budget allows no more', 'red'],
    ['Shards 1-3 of my-run/007 stored', 'dim'],
  ] as const)
    it(`the colour of an event of "${text}" is ${style ?? 'none'}`, () =>
      assert.deepEqual(styleOf(text), style));
});
