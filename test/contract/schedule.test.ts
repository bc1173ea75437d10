import assert from 'node:assert/strict';
import {GoogleError, openGoogle} from '../../client/google/api.ts';
import {openSchedule, type Schedule} from '../../client/google/schedule.ts';
import {tickJob, tickLocation} from '../../emulator/scheduler.ts';
import {cloudState} from '../support/machine/a-cloud.ts';
import {useLocalCloud} from './local-cloud.ts';

describe('Schedule: Cloud Scheduler', () => {
  const cloud = useLocalCloud({tick_interval_ms: 60_000});

  function aSchedule(name = tickJob): Schedule {
    const {project, url, token} = cloud();
    const job = `projects/${project}/locations/${tickLocation}/jobs/${name}`;
    return openSchedule(openGoogle({endpoint: url, token}), job);
  }

  const local = () => cloudState<{scheduler: string; deliveries_pending: number}>(cloud());

  it('is enabled at first', async () => {
    assert.equal(await aSchedule().state(), 'ENABLED');
  });

  it('pauses and resumes, also when it is asked twice', async () => {
    const schedule = aSchedule();
    for (const [verb, state] of [
      ['resume', 'ENABLED'],
      ['pause', 'PAUSED'],
      ['pause', 'PAUSED'],
      ['resume', 'ENABLED'],
      ['resume', 'ENABLED'],
    ] as const) {
      await schedule[verb]();
      assert.deepEqual([await schedule.state(), (await local()).scheduler], [state, state]);
    }
  });

  for (const verb of ['resume', 'pause'] as const)
    it(`publishes one tick at each call of runNow after ${verb}, and keeps its state`, async () => {
      const schedule = aSchedule();
      await schedule[verb]();
      const before = await local();
      for (const published of [1, 2]) {
        await schedule.runNow();
        const {scheduler, deliveries_pending} = await local();
        assert.equal(deliveries_pending - before.deliveries_pending, published);
        assert.equal(scheduler, before.scheduler);
      }
    });

  it('names the job and the verb in every error', async () => {
    const schedule = aSchedule('no-such-job');
    await assert.rejects(schedule.state(), /Failed to read .*no-such-job/);
    await assert.rejects(schedule.runNow(), /Failed to run .*no-such-job/);
    await assert.rejects(schedule.pause(), /Failed to pause .*no-such-job/);
    await assert.rejects(schedule.resume(), /Failed to resume .*no-such-job/);
  });

  it('says what to do about a missing job and a missing permission', async () => {
    const refusing = (code: number, reason: string) =>
      openSchedule({call: () => Promise.reject(new GoogleError(code, 'call', reason))}, tickJob);
    await assert.rejects(
      refusing(404, 'Job not found.').state(),
      /Failed to read gleaner-tick: .*Job not found; name its --location/,
    );
    await assert.rejects(
      refusing(403, 'The principal lacks IAM permission "cloudscheduler.jobs.run"').runNow(),
      /Failed to run .*; grant the calling account roles\/cloudscheduler\.admin, which has cloudscheduler\.jobs\.run$/,
    );
  });
});
