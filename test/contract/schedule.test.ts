import assert from 'node:assert/strict';
import {openSchedule, type Schedule} from '../../client/google/schedule.ts';
import {ApiError} from '../../emulator/http/errors.ts';
import {tickLocation} from '../../emulator/scheduler.ts';
import {DEFAULT_DEPLOYMENT} from '../../shared/domain/deployment.ts';
import {GoogleProject, PROJECT} from '../support/google/google-project.ts';
import {cloudState} from '../support/machine/a-cloud.ts';
import {useLocalCloud} from './local-cloud.ts';

describe('Schedule: Cloud Scheduler', () => {
  const cloud = useLocalCloud({tick_interval_ms: 60_000});

  function aSchedule(deployment = DEFAULT_DEPLOYMENT): Schedule {
    const {project, url, token} = cloud();
    return openSchedule({endpoint: url, token}, {project, location: tickLocation, deployment});
  }

  const local = () => cloudState<{scheduler: string; deliveries_pending: number}>(cloud());

  it('is enabled at first', async () => {
    assert.deepEqual(await aSchedule().read(), {state: 'ENABLED', last_code: 0});
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
      assert.equal((await schedule[verb]()).state, state);
      assert.deepEqual([(await schedule.read()).state, (await local()).scheduler], [state, state]);
    }
  });

  for (const verb of ['resume', 'pause'] as const)
    it(`publishes one tick at each call of run after ${verb}, and keeps its state`, async () => {
      const schedule = aSchedule();
      await schedule[verb]();
      const before = await local();
      for (const published of [1, 2]) {
        await schedule.run();
        const {scheduler, deliveries_pending} = await local();
        assert.equal(deliveries_pending - before.deliveries_pending, published);
        assert.equal(scheduler, before.scheduler);
      }
    });

  for (const verb of ['read', 'run', 'pause', 'resume'] as const)
    it(`names the job and the verb in an error of ${verb}`, () =>
      assert.rejects(
        aSchedule('no-such')[verb](),
        new RegExp(`^ServiceError: Failed to ${verb} .*/no-such-tick`),
      ));

  const refusals = [
    {
      ...{what: 'a missing job', code: 404, answer: 'Job not found.'},
      says: /Failed to pause .*: Job not found; name its --location, or run `gleaner deploy`/,
    },
    {
      ...{what: 'a missing permission', code: 403},
      answer: 'The principal lacks IAM permission "cloudscheduler.jobs.pause"',
      says: /; grant the calling account roles\/cloudscheduler\.admin, which has cloudscheduler\.jobs\.pause$/,
    },
    {
      ...{what: 'a refusal that no text explains', code: 403, answer: 'Forbidden'},
      says: /: Forbidden; grant this account roles\/cloudscheduler\.admin$/,
    },
  ];
  for (const {what, code, answer, says} of refusals)
    it(`says what to do about ${what}`, async () => {
      const google = await new GoogleProject().start();
      const place = {project: PROJECT, location: 'us-east1', deployment: 'gleaner'};
      const schedule = openSchedule({endpoint: google.url, token: undefined}, place);
      google.answers.set(`POST /v1/${schedule.job}:pause`, new ApiError(code, answer));
      await assert.rejects(schedule.pause(), {name: 'ServiceError', message: says});
      await google.close();
    });
});
