import assert from 'node:assert/strict';
import {SIGNALS} from '../../shared/control-plane/calls/log.ts';
import {resourcesOf} from './a-deployment.ts';

/** Each `signal="…"` in the filters of the alerts. */
async function watched(): Promise<string[]> {
  const policies = (await resourcesOf()).filter(({type}) => type === 'google_monitoring_alert_policy');
  const text = JSON.stringify(policies.map(({values}) => values.conditions));
  return [...text.matchAll(/metric\.labels\.signal=\\"([\w-]+)/g)].map(([, signal = '']) => signal);
}

describe('alerts', () => {
  it('watch every signal of the log, each once', async () => {
    assert.deepEqual((await watched()).toSorted(), SIGNALS.toSorted());
  });
});
