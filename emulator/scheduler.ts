import type {CloudDatabase} from './database.ts';
import {ApiError} from './errors.ts';
import type {Handler, Request, Route} from './http.ts';
import type {JsonObject} from './json.ts';
import {wantsNumbers} from './tpu/catalog.ts';

export const tickJob = 'gleaner-tick';
export const tickLocation = 'us-central1';

const TOPIC = 'tick';

export type SchedulerOptions = {
  database: CloudDatabase;
  project: string;
  interval_ms: number;
  /** Publishes one message of the job. */
  publish: (topic: string, attributes: Record<string, string>) => void;
  /** False while no function can take a message: a burst of old ticks is useless. */
  isReady: () => boolean;
};

/** Cloud Scheduler with a single job, which publishes to topic `tick`. The interval is shorter than Google's minute. */
export class Scheduler {
  readonly #options: SchedulerOptions;
  readonly #name: string;
  #timer: NodeJS.Timeout | undefined;
  #last_at: string | undefined;

  constructor(options: SchedulerOptions) {
    this.#options = options;
    this.#name = `projects/${options.project}/locations/${tickLocation}/jobs/${tickJob}`;
  }

  start(): void {
    this.#timer = setInterval(() => {
      if (!this.isPaused() && this.#options.isReady()) this.#publish();
    }, this.#options.interval_ms);
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  /** True if an operator paused the job. A pause survives a crash of the emulator. */
  isPaused(): boolean {
    return this.#options.database.setting('scheduler') === 'PAUSED';
  }

  #publish(): void {
    this.#last_at = new Date().toISOString();
    this.#options.publish(TOPIC, {source: 'scheduler'});
  }

  #resource(request: Request): JsonObject {
    const isPaused = this.isPaused();
    const state = wantsNumbers(request.query) ? (isPaused ? 2 : 1) : isPaused ? 'PAUSED' : 'ENABLED';
    return {
      name: this.#name,
      description: `The tick; every ${this.#options.interval_ms} ms on this machine`,
      schedule: '* * * * *',
      timeZone: 'Etc/UTC',
      state,
      pubsubTarget: {
        topicName: `projects/${this.#options.project}/topics/${TOPIC}`,
        attributes: {source: 'scheduler'},
      },
      ...(this.#last_at ? {lastAttemptTime: this.#last_at, status: {code: 0}} : {}),
    };
  }

  routes(): Route[] {
    const jobs = '/v1/projects/{project}/locations/{location}/jobs';
    /** Pauses an enabled job and resumes a paused job; any other call fails, as Google documents. */
    const turn =
      (to: 'ENABLED' | 'PAUSED'): Handler =>
      request => {
        this.#check(request);
        const is = this.isPaused() ? 'PAUSED' : 'ENABLED';
        if (is === to) {
          const must = to === 'PAUSED' ? 'ENABLED' : 'PAUSED';
          throw new ApiError(400, `Job.state must be ${must} for this; it is ${is}`, {
            word: 'FAILED_PRECONDITION',
          });
        }
        this.#options.database.set('scheduler', to);
        return {json: this.#resource(request)};
      };
    const checked =
      (work: () => void): Handler =>
      request => {
        this.#check(request);
        work();
        return {json: this.#resource(request)};
      };
    return [
      ['GET', jobs, request => ({json: {jobs: [this.#resource(request)]}})],
      ['POST', `${jobs}/{job}:pause`, turn('PAUSED')],
      ['POST', `${jobs}/{job}:resume`, turn('ENABLED')],
      ['POST', `${jobs}/{job}:run`, checked(() => this.#publish())],
      ['GET', `${jobs}/{job}`, checked(() => {})],
    ];
  }

  #check({params}: Request): void {
    const name = `projects/${params.project}/locations/${params.location}/jobs/${params.job}`;
    if (name !== this.#name)
      throw new ApiError(404, `Job not found: ${name}; the local cloud has ${this.#name}`);
  }
}
