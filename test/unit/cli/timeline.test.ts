import assert from 'node:assert/strict';
import {storyLine, verbOf} from '../../../cli/screen/story.ts';
import {Timeline} from '../../../cli/screen/timeline.ts';

const event = (id: number, text: string) => ({
  id: String(id),
  at: `2026-11-22T10:00:0${id % 10}.000Z`,
  text,
});
const stored = (id: number, shard: number, stream: string) =>
  event(id, `Shard ${shard} of demo/${stream} stored: samples 0-4`);

describe('The timeline', () => {
  it('joins the shards of each stream in one line before the next event', () => {
    const timeline = new Timeline();
    const shards = [3, 4, 6, 5, 9].map((shard, id) => stored(id, shard, '000'));
    assert.deepEqual(timeline.add([...shards, stored(5, 1, '001')], 0), []);
    const lines = timeline.add([...shards, event(6, 'Stream demo/000 is complete')], 100);
    assert.deepEqual(
      lines.map(({text}) => text),
      ['Shards 3-6, 9 of demo/000 stored', 'Shard 1 of demo/001 stored', 'Stream demo/000 is complete'],
    );
    assert.equal(lines[0]?.at, shards[4]?.at);
    assert.deepEqual(timeline.add(shards, 100_000), []);
  });

  it('shows a shard after two seconds at the latest', () => {
    const timeline = new Timeline();
    assert.deepEqual(timeline.add([stored(1, 1, '000')], 1000), []);
    assert.deepEqual(timeline.add([stored(2, 2, '000')], 2900), []);
    assert.deepEqual(
      timeline.add([], 3000).map(({text}) => text),
      ['Shards 1-2 of demo/000 stored'],
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
    it(`has ${verb ?? 'no verb'} for "${text}"`, () => assert.equal(verbOf(text)?.verb, verb));

  it('has a time and a verb in front of each event, and leaves other events out', () => {
    const at = '2026-11-22T10:00:07.000Z';
    assert.equal(
      storyLine({at, text: 'preempted tpu-a-0 without notice'})?.text,
      '10:00:07  PREEMPTED  tpu-a-0 without notice',
    );
    assert.equal(storyLine({at, text: 'tpu-a-0 is READY and boots'}), undefined);
  });
});
