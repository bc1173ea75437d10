import assert from 'node:assert/strict';
import {PassThrough} from 'node:stream';
import {WriteStream} from 'node:tty';
import {stripVTControlCharacters} from 'node:util';
import {liveView} from '../../../cli/demo/progress-view.ts';

/** Output stream of a terminal or a file; `text` returns what was written. */
function output(isTTY: boolean, env: Record<string, string> = {}) {
  const getColorDepth = () => WriteStream.prototype.getColorDepth({TERM: 'xterm-256color', ...env});
  const stream = Object.assign(new PassThrough(), {isTTY, columns: 100, getColorDepth});
  const text = () => String(stream.read() ?? '');
  return {out: stream as unknown as NodeJS.WriteStream, text};
}

describe('The live view of a demo', () => {
  const forced = process.env.FORCE_COLOR;
  before(() => {
    delete process.env.FORCE_COLOR;
  });
  after(() => {
    if (forced !== undefined) process.env.FORCE_COLOR = forced;
  });

  it('prints a preemption with its time, bold and yellow on a terminal', () => {
    const {out, text} = output(true);
    liveView(out, false).highlight('preempted tpu-a-0');
    const line = text();
    assert.match(stripVTControlCharacters(line), /^\d\d:\d\d:\d\d {2}preempted tpu-a-0\n$/);
    assert.ok(line.startsWith('\u001b[1m\u001b[33m'), JSON.stringify(line));
  });

  for (const [where, isTTY, env] of [
    ['in a file', false, {}],
    ['on a terminal with NO_COLOR', true, {NO_COLOR: '1'}],
  ] as const)
    it(`prints no colours ${where}`, () => {
      const {out, text} = output(isTTY, env);
      liveView(out, false).highlight('preempted tpu-a-0');
      assert.match(text(), /^\d\d:\d\d:\d\d {2}preempted tpu-a-0\n$/);
    });

  it('shows the current step with its seconds below the other lines of a terminal', () => {
    const {out, text} = output(true);
    const live = liveView(out, false);
    live.begin('Preparing');
    assert.equal(text(), 'Preparing … 0 s\n');
    live.say('Installing');
    assert.equal(text(), '\u001b[1A\u001b[JInstalling\nPreparing … 0 s\n');
    live.begin('Making');
    assert.equal(text(), 'Making … 0 s\n');
    live.end();
    assert.equal(text(), '');
  });

  it('prints nothing with --json', () => {
    const {out, text} = output(false);
    const live = liveView(out, true);
    live.begin('Preparing');
    live.highlight('preempted');
    live.end();
    assert.equal(text(), '');
  });
});
