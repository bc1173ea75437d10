import assert from 'node:assert/strict';
import {mock} from 'node:test';
import {withClock} from '../../../cli/terminal/progress-clock.ts';
import {say} from '../../../client/text/output.ts';

describe('Work that takes minutes', () => {
  /** What standard error gets in so many seconds, with another line after 30 s. */
  async function written(isTTY: boolean, seconds: number): Promise<string> {
    let text = '';
    const {isTTY: before} = process.stderr;
    const write = mock.method(process.stderr, 'write', (chunk: string) => {
      text += chunk.replaceAll('\r\u001b[K', '<');
      return true;
    });
    mock.timers.enable({apis: ['setInterval', 'Date']});
    Object.assign(process.stderr, {isTTY});
    try {
      await withClock('The work goes on', async clock => {
        for (let second = 1; second <= seconds; second++) {
          mock.timers.tick(1000);
          if (second === 30) clock.what = 'The second part goes on';
          if (second === 30) say('a line');
        }
      });
    } finally {
      Object.assign(process.stderr, {isTTY: before});
      mock.timers.reset();
      write.mock.restore();
    }
    return text;
  }

  it('Work that takes minutes has one line on a terminal, which changes and is gone at the end', async () => {
    const text = await written(true, 65);
    assert.deepEqual(text.split('\n').length, 2, 'only the line of say stays');
    assert.match(text, /<The work goes on for 29 s</);
    assert.match(text, /The second part goes on for 65 s<$/);
  });

  it('Work that takes minutes has a line a minute elsewhere', async () => {
    assert.deepEqual((await written(false, 125)).split('\n'), [
      'a line',
      'The second part goes on for 60 s',
      'The second part goes on for 2.0 min',
      '',
    ]);
  });
});
