/** Screens of runs on terminals of several sizes, and on pipes. */
import assert from 'node:assert/strict';
import {PassThrough} from 'node:stream';
import {stripVTControlCharacters} from 'node:util';
import {DemoScreen} from '../../../cli/demo/demo-screen.ts';
import {plainLine, screenLines} from '../../../cli/run/watch/screen-lines.ts';
import {LiveScreen} from '../../../cli/screen/live.ts';
import {costLine, headLine, streamLine, summaryLine} from '../../../cli/screen/run-screen.ts';
import type {RunState} from '../../../client/views/run-state.ts';
import {aTerminal} from '../../support/machine/terminal.ts';
import {aRun, aStream, aWorker, T0} from '../../world/builders.ts';

const TPU = 'tpu-us-central1-a-0';

/** A run with `count` streams: the first is at work, the second is lost by a preempted TPU. */
function aState(count: number, changes: Partial<RunState['run']> = {}): RunState {
  const streams = Array.from({length: count}, (_, index) => {
    const stream = String(index).padStart(3, '0');
    return aStream({run: 'my-run', stream, worker_id: index});
  });
  const lease = {worker: TPU, incarnation: 1, epoch: 1};
  const first = aStream({
    ...{run: 'my-run', stream: '000', worker_id: 0, status: 'in_progress', lease},
    total_samples_processed: 62,
    ...{last_processed_sample_idx: 61, total_shards: 5},
  });
  const tpus = [
    aWorker({
      name: TPU,
      phase: 'working',
      work: 'my-run/000',
      samples_total: 100,
      samples_done: 93,
      activity: 'running',
    }),
    aWorker({name: 'tpu-us-central1-a-1', phase: 'deleting', provider_state: 'PREEMPTED'}),
  ];
  const run = aRun({
    run: 'my-run',
    status: 'active',
    streams_pending: count - 1,
    streams_in_progress: 1,
    ...changes,
  });
  const work = new Map([[TPU, first]]);
  return {run, streams: [first, ...streams.slice(1)], workers: tpus, tpus, work, invalid: []};
}

const frame = (width: number, height: number) => ({width, height, header: 'bucket b', now: T0});

describe('The screen of run watch', () => {
  for (const columns of [40, 80, 120])
    for (const count of [1, 200])
      it(`the screen of run watch fits ${columns} columns and 24 rows with ${count} streams, and is redrawn in place`, async () => {
        const terminal = aTerminal(columns, 24);
        const screen = new LiveScreen(terminal.out);
        const draw = () => screen.show(screenLines(aState(count), [], frame(screen.width, screen.height)));
        draw();
        const once = await terminal.lines();
        draw();
        assert.deepEqual(await terminal.lines(), once);
        assert.ok(once.length <= 23, `${once.length} lines`);
        const text = once.join('\n');
        for (const word of [
          'my-run  active',
          'TPU NAME',
          'WORKING',
          'PREEMPTED',
          'TOTALS',
          'Healthy: 1',
          'Last update',
        ])
          assert.ok(text.includes(word), `${word} is missing:\n${text}`);
      });

  for (const height of [4, 8, 12, 19, 20, 24, 50])
    for (const invalid of [[], ['Failed to read workers/x: phase']])
      it(`the screen of run watch keeps its last line in ${height} rows with 60 TPUs, 60 streams and ${invalid.length} invalid documents`, () => {
        const state = aState(60);
        const more = Array.from({length: 58}, (_, slot) => aWorker({name: `tpu-us-central1-b-${slot}`}));
        const events = Array.from({length: 6}, (_, index) => ({text: `event ${index}`}));
        const lines = screenLines(
          {...state, invalid, tpus: [...state.tpus, ...more]},
          events,
          frame(80, height),
        );
        assert.ok(lines.length <= height, `${lines.length} lines`);
        assert.match(lines.at(-1)?.text ?? '', /^Last update: /);
      });

  it('the screen of run watch is redrawn in place with characters that take two cells', async () => {
    const terminal = aTerminal(40, 24);
    const screen = new LiveScreen(terminal.out);
    const state = aState(1, {reason: '漢'.repeat(60)});
    for (let draw = 0; draw < 3; draw++)
      screen.show(screenLines(state, [], frame(screen.width, screen.height)));
    const lines = await terminal.lines();
    assert.equal(lines.filter(line => line.startsWith('my-run  active')).length, 1, lines.join('\n'));
  });

  it('the screen of run watch has the columns of the monitor on a wide terminal', () => {
    const lines = screenLines(aState(3), [], frame(100, 30)).map(({text}) => text);
    assert.ok(
      lines.some(line => /^TPU NAME +STATUS +COMPUTED +STORED +SHARDS +WORK$/.test(line)),
      lines.join('\n'),
    );
    assert.ok(
      lines.some(line => /^tpu-us-central1-a-0 +WORKING +93\/100 +62 +5 +stream 000 \(running\)$/.test(line)),
      lines.join('\n'),
    );
  });

  it('the screen of run watch on 60 columns has the number of the stream, what is stored and the time left', async () => {
    const state = aState(3, {total_tokens: 6200, cost_usd: 0.02, budget_usd: 1});
    const [first = aStream(), ...others] = state.streams;
    const stored = {...first, total_tokens: 6200};
    const terminal = aTerminal(60, 24);
    const tpus = state.tpus.map(tpu => ({...tpu, tokens_per_s: tpu.name === TPU ? 100 : null}));
    const seen = {...state, tpus, streams: [stored, ...others], work: new Map([[TPU, stored]])};
    new LiveScreen(terminal.out).show(screenLines(seen, [], frame(60, 23)));
    const text = (await terminal.lines()).join('\n');
    assert.match(text, /^us-central1-a-0 +WORKING +93\/100 +62 +000 \(running\)$/m);
    assert.match(text, /^stream 000 .* 93% +93 computed, 62 stored/m);
    assert.match(text, /^\$0\.02 of \$1\.00, .* a million tokens\n100 tokens\/s, about .* min left$/m);
  });

  it('the screen of run watch has the time left from the first stored shard on, by the bytes of streams without a total', () => {
    const {streams, tpus, ...state} = aState(3);
    const first = {...(streams[0] ?? aStream()), total_tokens: 6200};
    const working = tpus.map(tpu => ({...tpu, tokens_per_s: tpu.name === TPU ? 100 : null}));
    const left = (stored: typeof first) =>
      costLine({
        ...state,
        streams: [stored, ...streams.slice(1)],
        tpus: working,
        work: new Map([[TPU, stored]]),
      });
    // 7 samples of 100 tokens, and twice 100 bytes of 100 tokens.
    assert.match(left(first).text, /; 100 tokens\/s, about 3\.5 min left$/);
    const none = {...first, last_processed_sample_idx: -1, total_tokens: 0};
    assert.match(left(none).text, /; 100 tokens\/s$/);
  });

  it('the screen of run watch leaves no line behind when the terminal becomes narrower', async () => {
    const terminal = aTerminal(120, 30);
    const screen = new LiveScreen(terminal.out);
    const draw = () => screen.show(screenLines(aState(4), [], frame(screen.width, screen.height)));
    draw();
    await terminal.lines();
    terminal.resize(50, 30);
    draw();
    const lines = await terminal.lines();
    assert.equal(lines.filter(line => line.startsWith('TPU NAME')).length, 1, lines.join('\n'));
  });

  it('the screen of run watch names the host that the worker of a stream waits for', () => {
    const {streams, tpus} = aState(1);
    const waits = {activity: 'loading', waits_for: 'hub.example: ConnectError, try 7'};
    const {text} = streamLine(
      streams[0] ?? aStream({}),
      tpus.map(tpu => ({...tpu, ...waits})),
      120,
    );
    assert.match(text, /on tpu-us-central1-a-0 \(loading, waiting for hub\.example: ConnectError, try 7\)/);
  });

  it('the screen of run watch shows hostile names without control characters', async () => {
    const hostile = 'x\u001b]0;PWN\u0007\u009b2J\u202e'.repeat(40);
    const state = aState(2, {reason: hostile});
    state.tpus[0] = {...aWorker({name: TPU}), activity: hostile};
    const terminal = aTerminal(80, 24);
    new LiveScreen(terminal.out).show(screenLines(state, [{text: hostile}], frame(80, 23)));
    const own = stripVTControlCharacters(terminal.raw());
    assert.doesNotMatch(own, /[^\P{Cc}\n\r]|\p{Cf}/u);
    assert.ok((await terminal.lines()).every(line => line.length <= 80));
  });

  for (const [where, env, coloured] of [
    ['has colours on a terminal', {}, true],
    ['has no colours with NO_COLOR', {NO_COLOR: '1'}, false],
  ] as const)
    it(where, () => {
      const forced = process.env.FORCE_COLOR;
      delete process.env.FORCE_COLOR;
      const terminal = aTerminal(80, 24, env);
      new LiveScreen(terminal.out).show(screenLines(aState(2), [], frame(80, 23)));
      if (forced !== undefined) process.env.FORCE_COLOR = forced;
      assert.equal(terminal.raw().includes('\u001b[31m'), coloured);
    });

  it('the screen of run watch says how long TPUs still work for a paused run', () => {
    const state = aState(1, {status: 'paused', reason: 'a person paused it', spec: {window_tokens: 65_536}});
    const workers = state.workers.map(tpu => ({...tpu, tokens_per_s: 100}));
    const text =
      'my-run  paused: a person paused it; 1 TPU still stores the windows in hand, for about 11 min';
    assert.equal(headLine({...state, workers}).text, text);
    assert.equal(headLine({...state, workers: []}).text, 'my-run  paused: a person paused it');
  });

  it('the screen of run watch counts healthy, working and lost TPUs', () =>
    assert.equal(summaryLine(aState(2)).text, 'Healthy: 1  Working: 1  Needs Recovery: 1'));

  it('the screen of run watch is one line on a pipe', () =>
    assert.equal(
      plainLine(aState(3)),
      'my-run active  31 computed, 0 samples stored, 0 shards, 0 bytes, $0.00; 3 streams: 1 in progress, 2 pending; 2 TPUs: 1 WORKING, 1 PREEMPTED',
    ));
});

describe('The line of a stream', () => {
  it('the line of a stream has no bar before a TPU has counted the samples', () => {
    const stream = aStream({
      stream: '007',
      worker_id: 7,
      total_samples_processed: 1,
      total_shards: 1,
      last_processed_sample_idx: 0,
    });
    assert.equal(streamLine(stream, [], 100).text, 'stream 007  1 sample, 1 shard  pending');
  });

  it('the line of a stream has a full bar when the stream is completed', () => {
    const stream = aStream({
      stream: '007',
      status: 'completed',
      total_samples_processed: 1240,
      total_shards: 5,
      last_processed_sample_idx: 1239,
    });
    assert.match(
      streamLine(stream, [], 40).text,
      /^stream 007 {2}█{8} 100% {2}1,240 samples, 5 shards {2}completed$/,
    );
  });
});

describe('The screen of a demo', () => {
  const event = {id: '1', at: '2026-11-22T10:00:07.000Z', text: 'preempted tpu-a-0 without notice'};

  it('the screen of a demo grows by the story, and keeps one table below it', async () => {
    const terminal = aTerminal(100, 30);
    const screen = new DemoScreen(terminal.out, false);
    screen.begin('Preparing');
    screen.show(aState(2), [], [100, 100], 0);
    screen.show(aState(2), [event], [100, 100], Number.POSITIVE_INFINITY);
    screen.end();
    screen.say('done');
    const lines = await terminal.lines();
    assert.deepEqual(
      [lines[0], lines[1]],
      ['Preparing … 0 s', '10:00:07  PREEMPTED  tpu-a-0 without notice'],
    );
    assert.equal(lines.filter(line => line.startsWith('TPU NAME')).length, 1, lines.join('\n'));
    assert.equal(lines.at(-1), 'done');
  });

  it('the screen of a demo is the story alone on a pipe, without control characters', () => {
    const out = new PassThrough();
    const screen = new DemoScreen(out as unknown as NodeJS.WriteStream, false);
    screen.show(aState(2), [event], [], Number.POSITIVE_INFINITY);
    screen.end();
    assert.equal(String(out.read()), '10:00:07  PREEMPTED  tpu-a-0 without notice\n');
  });

  it('the screen of a demo is empty with --json', () => {
    const out = new PassThrough();
    const screen = new DemoScreen(out as unknown as NodeJS.WriteStream, true);
    screen.begin('Preparing');
    screen.show(aState(2), [event], [], 0);
    screen.end();
    assert.equal(out.read(), null);
  });
});
