import assert from 'node:assert/strict';
import {fileURLToPath} from 'node:url';
import {FunctionHost} from '../../emulator/functions/functions.ts';
import {readTriggers} from '../../emulator/functions/triggers.ts';
import {functionsModule, triggers} from '../support/machine/a-cloud.ts';

describe('A function host whose functions must be connected to topics', () => {
  const log: string[] = [];
  let host: FunctionHost;
  afterEach(async () => {
    await host.stop();
    log.length = 0;
  });

  function hostWith(listening: () => Promise<void>, patience?: AbortController): FunctionHost {
    host = new FunctionHost({
      ...{deployment: 'gleaner', module: functionsModule, token: 'secret', listening},
      entry: fileURLToPath(new URL('../../emulator/functions/function-host.ts', import.meta.url)),
      env: () => ({GLEANER_LOCAL_TOKEN: 'secret'}),
      triggers: readTriggers(triggers).functions,
      log: text => {
        log.push(text);
        if (text.includes('not connected')) patience?.abort();
      },
    });
    return host;
  }

  it('connects them again after an error', async () => {
    let calls = 0;
    await hostWith(async () => {
      if (++calls < 3) throw new Error('no answer');
    }).start();
    assert.equal(calls, 3);
    const tries = log.filter(text => text.includes('connected')).map(text => text.replace(/\d+/, 'N'));
    assert.deepEqual(
      tries,
      Array(2).fill('the functions are not connected (no answer); trying again in N ms'),
    );
    assert.match(log.at(-1) ?? '', /^functions ready: /);
  });

  it('fails to start with the error where no connection succeeds', async () => {
    const never = async () => {
      throw new Error('no answer');
    };
    const patience = new AbortController();
    await assert.rejects(hostWith(never, patience).start(patience.signal), {
      code: 'emulator-failed',
      message: 'Failed to connect the functions to their topics: no answer; start the local cloud again',
    });
  });

  it('calls nothing after its end', async () => {
    let calls = 0;
    const starting = hostWith(async () => {
      calls++;
      throw new Error('no answer');
    }).start();
    while (calls === 0) await new Promise(resolve => setTimeout(resolve, 5));
    await host.stop();
    await starting;
    const before = calls;
    await new Promise(resolve => setTimeout(resolve, 500));
    assert.equal(calls, before);
  });
});
