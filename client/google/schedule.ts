/** The job of Cloud Scheduler that asks for a tick every minute. Google's client takes longer to load than its calls take. */
import {ServiceError} from '../../shared/contracts/errors.ts';
import {isNotFound, isPermission, withAdvice} from '../../shared/google/errors.ts';
import {type GoogleApi, GoogleError, type Json} from './api.ts';

/** Verbs of the API. */
type Verb = 'run' | 'pause' | 'resume';

/** The job `projects/P/locations/L/jobs/J`. Every verb is safe to repeat. */
export class Schedule {
  readonly #api: Pick<GoogleApi, 'call'>;
  readonly #job: string;

  constructor(api: Pick<GoogleApi, 'call'>, job: string) {
    this.#api = api;
    this.#job = job;
  }

  /** State as Cloud Scheduler names it: ENABLED, PAUSED, DISABLED or UPDATE_FAILED. */
  async state(): Promise<string> {
    const {state} = await this.#call('GET', '').catch(cause => this.#fail('read', cause));
    return typeof state === 'string' ? state : 'STATE_UNSPECIFIED';
  }

  /** Publishes one message now, also while the job is paused. */
  async runNow(): Promise<void> {
    await this.#post('run');
  }

  async pause(): Promise<void> {
    await this.#turn('pause', 'PAUSED');
  }

  async resume(): Promise<void> {
    await this.#turn('resume', 'ENABLED');
  }

  /** Scheduler refuses to pause a paused job, and to resume an enabled one. */
  async #turn(verb: Verb, wanted: string): Promise<void> {
    await this.#post(verb).catch(async error => {
      if ((await this.state().catch(() => undefined)) !== wanted) throw error;
    });
  }

  async #post(verb: Verb): Promise<void> {
    await this.#call('POST', `:${verb}`).catch(cause => this.#fail(verb, cause));
  }

  #call(method: 'GET' | 'POST', verb: string): Promise<Json> {
    return this.#api.call(method, `cloudscheduler.googleapis.com/v1/${this.#job}${verb}`);
  }

  #fail(verb: Verb | 'read', cause: unknown): never {
    throw new ServiceError(`Failed to ${verb} ${this.#job}: ${said(cause)}`, {cause});
  }
}

function said(cause: unknown): string {
  const error =
    cause instanceof GoogleError ? Object.assign(new Error(cause.reason), {code: cause.code}) : cause;
  if (isNotFound(cause))
    return withAdvice(error, 'name its --location, or apply the Terraform, which makes the job');
  return withAdvice(error, isPermission(error) ? 'grant this account roles/cloudscheduler.admin' : undefined);
}
