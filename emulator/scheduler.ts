import {EmbeddedTicker} from '../shared/embedded/ticker.ts';
import type {CloudDatabase} from './database.ts';
import {ApiError} from './errors.ts';
import {HOST_HEADER} from './guard.ts';
import type {Handler, Request, Route} from './http.ts';
import type {Json, JsonObject} from './json.ts';
import {wantsNumbers} from './tpu/catalog.ts';

export const tickJob = 'gleaner-tick';
export const tickLocation = 'us-central1';

export type SchedulerOptions = {
  database: CloudDatabase;
  project: string;
  interval_ms: number;
  /** Token that every request to the host of the functions carries. */
  token: string;
  /** Where the function listens, undefined while its host is away. */
  portOf: () => number | undefined;
  trouble: (text: string) => void;
};

/** Cloud Scheduler with its one job. The beat is faster than Google's minute, so that a laptop need not wait. */
export class Scheduler {
  readonly #options: SchedulerOptions;
  readonly #name: string;
  readonly ticker: EmbeddedTicker;
  #last_tick: {at: string; code: number} | undefined;

  constructor(options: SchedulerOptions) {
    this.#options = options;
    const {database, project, interval_ms, trouble} = options;
    this.#name = `projects/${project}/locations/${tickLocation}/jobs/${tickJob}`;
    this.ticker = new EmbeddedTicker({
      interval_ms,
      tick: () => this.#tick(),
      saved: {
        get: () => database.setting('ticker') === 'on',
        set: on => database.set('ticker', on ? 'on' : 'off'),
      },
      trouble: error => trouble(`a tick failed: ${(error as Error).message}`),
    });
  }

  async #tick(): Promise<void> {
    const port = this.#options.portOf();
    if (port === undefined) return;
    const at = new Date().toISOString();
    this.#last_tick = {at, code: 14};
    const response = await fetch(`http://127.0.0.1:${port}/`, {
      method: 'POST',
      headers: {
        [HOST_HEADER]: this.#options.token,
        'content-type': 'application/octet-stream',
        'user-agent': 'Google-Cloud-Scheduler',
        'x-cloudscheduler': 'true',
        'x-cloudscheduler-jobname': tickJob,
        'x-cloudscheduler-scheduletime': at,
      },
      signal: AbortSignal.timeout(180_000),
    });
    const text = await response.text();
    this.#last_tick = {at, code: response.ok ? 0 : 13};
    if (!response.ok) throw new Error(`it answered ${response.status}: ${text.slice(0, 500)}`);
  }

  #resource(request: Request): JsonObject {
    const {on, post} = wantsNumbers(request.query)
      ? {on: this.ticker.isOn() ? 1 : 2, post: 1}
      : {on: this.ticker.isOn() ? 'ENABLED' : 'PAUSED', post: 'POST'};
    const last: JsonObject = this.#last_tick
      ? {lastAttemptTime: this.#last_tick.at, status: {code: this.#last_tick.code}}
      : {};
    return {
      name: this.#name,
      description: `The tick; every ${this.#options.interval_ms} ms on this machine`,
      schedule: '* * * * *',
      timeZone: 'Etc/UTC',
      state: on as Json,
      httpTarget: {uri: `http://${request.headers.host}/functions/on-tick`, httpMethod: post as Json},
      attemptDeadline: '180s',
      ...last,
    };
  }

  routes(): Route[] {
    const jobs = '/v1/projects/{project}/locations/{location}/jobs';
    /** As documented, a job is paused from ENABLED and resumed from PAUSED and from nothing else. */
    const turn =
      (on: boolean): Handler =>
      async request => {
        this.#check(request);
        if (this.ticker.isOn() === on) {
          const [must, is] = on ? ['PAUSED', 'ENABLED'] : ['ENABLED', 'PAUSED'];
          throw new ApiError(400, `Job.state must be ${must} for this; it is ${is}`, {
            word: 'FAILED_PRECONDITION',
          });
        }
        await (on ? this.ticker.on() : this.ticker.off());
        return {json: this.#resource(request)};
      };
    return [
      ['GET', jobs, request => ({json: {jobs: [this.#resource(request)]}})],
      ['POST', `${jobs}/{job}:pause`, turn(false)],
      ['POST', `${jobs}/{job}:resume`, turn(true)],
      [
        'POST',
        `${jobs}/{job}:run`,
        request => {
          this.#check(request);
          void this.ticker.tickNow();
          return {json: this.#resource(request)};
        },
      ],
      [
        'GET',
        `${jobs}/{job}`,
        request => {
          this.#check(request);
          return {json: this.#resource(request)};
        },
      ],
    ];
  }

  #check({params}: Request): void {
    const name = `projects/${params.project}/locations/${params.location}/jobs/${params.job}`;
    if (name !== this.#name)
      throw new ApiError(404, `Job not found: ${name}; the local cloud has ${this.#name}`);
  }
}
