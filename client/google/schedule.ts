/** The job of Cloud Scheduler that asks for a tick every minute. Google's client takes longer to load than its calls take. */
import {ServiceError} from '../../shared/contracts/errors.ts';
import {isNotFound, isPermission, withAdvice} from '../../shared/google/errors.ts';
import {type GoogleApi, GoogleError} from './api.ts';

/** `state`: as Cloud Scheduler names it: ENABLED, PAUSED, DISABLED or UPDATE_FAILED. `runNow` publishes also while the job is paused. */
export type Schedule = Record<'runNow' | 'pause' | 'resume', () => Promise<void>> & {
  state(): Promise<string>;
};

/** The job `projects/P/locations/L/jobs/J`. Every verb is safe to repeat. */
export function openSchedule(api: Pick<GoogleApi, 'call'>, job: string): Schedule {
  const call = (method: 'GET' | 'POST', suffix: string, verb: string) =>
    api.call(method, `cloudscheduler.googleapis.com/v1/${job}${suffix}`).catch(cause => {
      throw new ServiceError(`Failed to ${verb} ${job}: ${reasonText(cause)}`, {cause});
    });
  const post = async (verb: string) => void (await call('POST', `:${verb}`, verb));
  const state = async () => {
    const {state} = await call('GET', '', 'read');
    return typeof state === 'string' ? state : 'STATE_UNSPECIFIED';
  };
  // Scheduler refuses to pause a paused job, and to resume an enabled one.
  const turn = (verb: string, wanted: string) =>
    post(verb).catch(async error => {
      if ((await state().catch(() => undefined)) !== wanted) throw error;
    });
  return {
    state,
    runNow: () => post('run'),
    pause: () => turn('pause', 'PAUSED'),
    resume: () => turn('resume', 'ENABLED'),
  };
}

function reasonText(cause: unknown): string {
  const error =
    cause instanceof GoogleError ? Object.assign(new Error(cause.reason), {code: cause.code}) : cause;
  if (isNotFound(cause))
    return withAdvice(error, 'name its --location, or apply the Terraform, which makes the job');
  return withAdvice(error, isPermission(error) ? 'grant this account roles/cloudscheduler.admin' : undefined);
}
