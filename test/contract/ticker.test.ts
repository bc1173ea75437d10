import assert from 'node:assert/strict';
import {functionEnvironment} from '../../emulator/environment.ts';
import {openTicker} from '../../shared/google/ticker.ts';
import {useLocalCloud} from './local-cloud.ts';

describe('Ticker: Cloud Scheduler', () => {
  const cloud = useLocalCloud({tick_interval_ms: 60_000});

  async function state(): Promise<unknown> {
    const answer = (await (await fetch(`${cloud().url}/_local`)).json()) as {ticker: unknown};
    return answer.ticker;
  }

  it('turns on and off, and may be told so twice', async () => {
    const job = functionEnvironment(cloud(), '').GLEANER_TICK_JOB ?? '';
    const ticker = openTicker({job, endpoint: cloud().url, token: cloud().token});
    for (const wanted of ['on', 'on', 'off', 'off', 'on'] as const) {
      await ticker[wanted]();
      assert.equal(await state(), wanted);
    }
  });

  it('says which job it could not turn', async () => {
    const job = `projects/${cloud().project}/locations/us-central1/jobs/no-such-job`;
    const ticker = openTicker({job, endpoint: cloud().url, token: cloud().token});
    await assert.rejects(ticker.on(), /Failed to resume .*no-such-job/);
    await assert.rejects(ticker.off(), /Failed to pause .*no-such-job/);
  });
});
