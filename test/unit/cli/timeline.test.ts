import assert from 'node:assert/strict';
import fc from 'fast-check';
import {OrderedEvents, storyLine, Timeline, verbOf} from '../../../client/events/timeline.ts';

const event = (id: number, text: string) => ({
  id: String(id),
  at: `2026-11-22T10:00:0${id % 10}.000Z`,
  text,
});
const stored = (id: number, shard: number, stream: string) =>
  event(id, `Shard ${shard} of demo/${stream} stored: samples 0-4`);

describe('The timeline', () => {
  const texts = (lines: {text: string}[]) => lines.map(({text}) => text);

  it('the timeline joins the shards of each stream in one line before the next event', () => {
    const timeline = new Timeline();
    const shards = [3, 4, 6, 5, 9].map((shard, id) => stored(id, shard, '000'));
    assert.deepEqual(timeline.add([...shards, stored(5, 1, '001')], 0), []);
    assert.deepEqual(timeline.add([...shards, event(6, 'Stream demo/000 is complete')], 500), []);
    const lines = timeline.add(shards, 1500);
    assert.deepEqual(texts(lines), [
      'Shards 3-6, 9 of demo/000 stored',
      'Shard 1 of demo/001 stored',
      'Stream demo/000 is complete',
    ]);
    assert.equal(lines[0]?.at, shards[4]?.at);
    assert.deepEqual(timeline.add(shards, 100_000), []);
  });

  it('the timeline shows a shard after two seconds at the latest', () => {
    const timeline = new Timeline();
    assert.deepEqual(timeline.add([stored(1, 1, '000')], 1000), []);
    assert.deepEqual(timeline.add([stored(2, 2, '000')], 1500), []);
    assert.deepEqual(timeline.add([], 2000), []);
    assert.deepEqual(timeline.add([], 2500), []);
    assert.deepEqual(texts(timeline.add([], 3000)), ['Shards 1-2 of demo/000 stored']);
  });

  it('the timeline orders the lines of several streams by their newest shards', () => {
    const shards = [stored(1, 1, '000'), stored(2, 1, '001'), stored(3, 2, '000')];
    assert.deepEqual(texts(new Timeline().add(shards, Number.POSITIVE_INFINITY)), [
      'Shard 1 of demo/001 stored',
      'Shards 1-2 of demo/000 stored',
    ]);
  });

  it('the timeline shows each event once and in the order of time, in whatever order they arrive within a second', () => {
    const T0 = Date.parse('2026-11-22T10:00:00.000Z');
    const times = fc.record({
      at_ms: fc.integer({min: 0, max: 20_000}),
      late_ms: fc.integer({min: 0, max: 750}),
      shard: fc.boolean(),
    });
    fc.assert(
      fc.property(fc.array(times, {maxLength: 40}), fc.integer({min: 1, max: 250}), (all, step_ms) => {
        const events = all.map(({at_ms, late_ms, shard}, id) => ({
          id: String(id),
          at: new Date(T0 + at_ms).toISOString(),
          text: shard ? `Shard ${id} of demo/00${id % 3} stored` : `event ${id}`,
          arrival_ms: T0 + at_ms + late_ms,
        }));
        const [timeline, objects] = [new Timeline(), new OrderedEvents<(typeof events)[number]>()];
        const [lines, ordered]: [{at: string; text: string}[], typeof events] = [[], []];
        for (let now_ms = T0; now_ms < T0 + 30_000; now_ms += step_ms) {
          const arrived = events.filter(({arrival_ms}) => arrival_ms <= now_ms);
          lines.push(...timeline.add(arrived, now_ms));
          ordered.push(...objects.add(arrived, now_ms));
        }
        for (const found of [lines, ordered]) {
          const at = found.map(line => line.at);
          assert.deepEqual(at, at.toSorted());
        }
        assert.equal(new Set(ordered).size, events.length);
        assert.equal(ordered.length, events.length);
      }),
    );
  });
});

describe('The story of a run', () => {
  for (const [text, verb] of [
    ['preempted tpu-a-0 without notice', 'PREEMPTED'],
    ['tpu-a-0 is lost: it was preempted; deleting it', 'lost'],
    ['tpu-a-0 is wanted: creating it, incarnation 2', 'recreated'],
    ['tpu-a-0 is wanted: creating it, incarnation 12', 'recreated'],
    ['tpu-a-0 is wanted: creating it, incarnation 1', 'created'],
    ['tpu-a-0 works on demo/000 from sample 12', 'resumed'],
    ['tpu-a-0 works on demo/000 from sample 0', 'started'],
    ['tpu-a-0 is gone', 'deleted'],
    ['Run demo is completed', 'completed'],
    ['tpu-a-0 is READY and boots', undefined],
  ] as const)
    it(`the story of a run has ${verb ?? 'no verb'} for "${text}"`, () =>
      assert.equal(verbOf(text)?.verb, verb));

  it('the story of a run has a time and a verb in front of each event, and leaves other events out', () => {
    const at = '2026-11-22T10:00:07.000Z';
    assert.equal(
      storyLine({at, text: 'preempted tpu-a-0 without notice'})?.text,
      '10:00:07  PREEMPTED  tpu-a-0 without notice',
    );
    assert.equal(storyLine({at, text: 'tpu-a-0 is READY and boots'}), undefined);
  });
});
