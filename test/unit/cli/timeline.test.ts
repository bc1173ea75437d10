import assert from 'node:assert/strict';
import {Timeline} from '../../../cli/demo/timeline.ts';

const event = (id: number, text: string) => ({
  id: String(id),
  at: `2026-11-22T10:00:0${id % 10}.000Z`,
  kind: 'any',
  run: 'demo',
  text,
});
const stored = (id: number, shard: number, stream: string) =>
  event(id, `Shard ${shard} of demo/${stream} stored: samples 0-4`);

describe('The timeline of a demo', () => {
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

  for (const [text, is_highlight] of [
    ['tpu-a-0 is lost: it was preempted; deleting it', true],
    ['tpu-a-0 is wanted: creating it, incarnation 2', true],
    ['tpu-a-0 is wanted: creating it, incarnation 12', true],
    ['tpu-a-0 works on demo/000 from sample 12', true],
    ['tpu-a-0 is wanted: creating it, incarnation 1', false],
    ['tpu-a-0 works on demo/000 from sample 0', false],
    ['tpu-a-0 is gone', false],
  ] as const)
    it(`${is_highlight ? 'highlights' : 'does not highlight'} "${text}"`, () =>
      assert.equal(new Timeline().add([event(1, text)], 0)[0]?.is_highlight, is_highlight));
});
