import assert from 'node:assert/strict';
import {timeText} from '../../../client/text/format.ts';
import {viewDeployment} from '../../../client/views/deployment.ts';
import {poolRecords, runRecords, zoneRecords} from '../../../shared/control-plane/documents/documents.ts';
import {startTask} from '../../../shared/control-plane/documents/tasks.ts';
import {OPEN} from '../../../shared/domain/records/limiter.ts';
import {afterFailedBoot, afterRefusal} from '../../../shared/domain/zone/limiter.ts';
import {newZone} from '../../../shared/domain/zone/placement.ts';
import {decideSilence, withHeld} from '../../../shared/domain/zone/silence-guard.ts';
import {openSqliteStore} from '../../../shared/embedded/sqlite-store.ts';
import type {Document} from '../../../shared/ports/ports.ts';
import {aConfig, aRun, at, aWorker, moment, T0} from '../../world/builders.ts';
import {putDocuments} from '../../world/scenes/put-documents.ts';

describe('The alerts of gleaner status', () => {
  it('the alerts of gleaner status name the silent workers of a zone with their dollars, a zone without capacity, and the stopped creates of a pool', async () => {
    const store = openSqliteStore(':memory:', () => 0);
    const worker = aWorker({heartbeat_at: at(-400), usd_per_hour: 1.25});
    const silent = {worker, speakers: 1, isCrowded: false, isLost: false, silent_s: 300};
    const silence_guard = withHeld(decideSilence(null, silent, moment(T0)).silence_guard, [worker, worker]);
    const limiter = [1, 2, 3, 4, 5].reduce(
      found => afterFailedBoot(found, 'bundle', 'its boot failed: no disk', T0),
      OPEN,
    );
    const refusal = {
      kind: 'no-capacity',
      reason: 'there is no capacity',
      isLate: false,
      asked_at: null,
    } as const;
    const soldOut = afterRefusal(OPEN, refusal, aConfig().placement, T0);
    await store.transaction(async tx => {
      zoneRecords.set(tx, {...newZone('us-central1-a', T0), silence_guard});
      zoneRecords.set(tx, newZone('us-east5-b', T0));
      zoneRecords.set(tx, {...newZone('us-east5-c', T0), limiter: soldOut});
      poolRecords.set(tx, {...aConfig().pool, limiter});
    });
    const utc = (seconds: number) => `${timeText(at(seconds))} UTC`;
    assert.deepEqual((await viewDeployment(store, 'jobs')).alerts, [
      'us-central1-a holds 2 silent TPUs for $2.50 an hour until a new TPU reports',
      `us-east5-c gives no TPU since ${utc(0)}, and is asked again after ${utc(60)}: there is no capacity`,
      `creates of pool tpu are stopped since ${utc(0)}: 5 boots in a row failed, the last because its boot failed: no disk`,
    ]);
    await store.close();
  });

  it('the alerts of gleaner status name the field of each document that is left alone', async () => {
    const store = openSqliteStore(':memory:', () => 0);
    await store.transaction(async tx => {
      runRecords.set(tx, aRun());
      tx.set('runs/other', {
        ...aRun({run: 'other'}),
        status: 'archived',
        release: 'abc',
      } as unknown as Document);
      tx.set('jobs/my-job', {epoch: 1, status: 'archived', updated_at: at(0)});
      tx.set('jobs/of-a-person', {status: 'done', updated_at: at(0)});
    });
    await putDocuments(store, {
      'execs/e1': {status: 'queued', created_at: at(0)},
      'tasks/prices': {task: 'prices', status: 'halted', updated_at: at(0)},
      'system/spending': {months: {'2026-01': 'much'}},
      'system/served': {gaps: 'many'},
      'system/creates': {creates: 'many'},
    });
    const alerts = (await viewDeployment(store, 'jobs')).alerts;
    const names = ['execs/e1', 'tasks/prices', 'system/spending', 'system/served', 'system/creates'];
    for (const [index, name] of names.entries())
      assert.match(alerts[index + 2] ?? '', new RegExp(`^${name}: `));
    assert.equal(alerts.length, 7);
    assert.match(alerts[0] ?? '', /^runs\/other: status: .* Release abc or a person wrote it/);
    assert.match(alerts[1] ?? '', /^jobs\/my-job: /);
    await store.close();
  });

  it('the alerts of gleaner status name a refresh of the prices that failed, with the day of the oldest price', async () => {
    const store = openSqliteStore(':memory:', () => 0);
    await startTask({store, now: () => T0, bus: {publish: async () => 'id'}}, {task: 'prices', run: null});
    assert.deepEqual((await viewDeployment(store, 'jobs')).alerts, []);
    await store.transaction(async tx => {
      const task = (await tx.get('tasks/prices')) ?? assert.fail();
      tx.set('tasks/prices', {...task, status: 'done', result: 'failed: no answer'});
      const of = (as_of: string) => ({usd: 2, spot_usd: 1, source: 'catalog', as_of});
      tx.set('prices/chips', {'v6e@us-east5': of('2026-01-02'), 'v6e@us-east1': of('2025-12-01')});
    });
    const [alert = ''] = (await viewDeployment(store, 'jobs')).alerts;
    assert.match(
      alert,
      /^the prices of TPUs are of 2025-12-01, \d+ days old: the refresh of 2026-01-02 failed: no/,
    );
    await store.close();
  });
});
