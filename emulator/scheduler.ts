import {nameIn, tickJobOf} from '../shared/domain/deployment.ts';
import {ApiError} from './http/errors.ts';
import type {Handler, Request, Route} from './http/http.ts';
import type {JsonObject} from './http/json.ts';
import type {CloudDatabase} from './state/database.ts';
import {wantsNumbers} from './tpu/catalog.ts';

export const tickLocation = 'us-central1';

/** Data of each message. A push without data would reach the function in another form. */
const DATA = Buffer.from('{}').toString('base64');

export type SchedulerOptions = {
  database: CloudDatabase;
  project: string;
  /** Names of the deployments; each has a job. */
  deployments: string[];
  interval_ms: number;
  /** Publishes one message of a job. */
  publish: (topic: string, message: {data: string; attributes: Record<string, string>}) => void;
  /** False while no function of the topic can receive a message, because a burst of old ticks would be useless. */
  isReady: (topic: string) => boolean;
  /** Time of the last write to a store of the deployments; undefined if nobody knows. */
  written_ms: () => number | undefined;
};

/** Intervals without a write after which the Scheduler rests, and how many of them it leaves out then. */
const REST_AFTER = 3;
const LEFT_OUT = 10;

const STATE_NUMBERS = {ENABLED: 1, PAUSED: 2};
type State = keyof typeof STATE_NUMBERS;
type Job = {name: string; topic: string; setting: string; last_at: string | undefined};

/**
 * Cloud Scheduler with one job for each deployment, which publishes to its topic `tick`. The interval is shorter than Google's minute, and
 * ten times as long while nothing happens: each heartbeat and each event that changes the plan writes.
 */
export class Scheduler {
  readonly #options: SchedulerOptions;
  readonly #jobs: Job[];
  #timer: NodeJS.Timeout | undefined;

  constructor(options: SchedulerOptions) {
    this.#options = options;
    const jobs = `projects/${options.project}/locations/${tickLocation}/jobs`;
    this.#jobs = options.deployments.map(deployment => ({
      name: `${jobs}/${tickJobOf(deployment)}`,
      topic: nameIn(deployment, 'tick'),
      setting: nameIn(deployment, 'scheduler'),
      last_at: undefined,
    }));
  }

  start(): void {
    let left_out = 0;
    this.#timer = setInterval(() => {
      left_out = this.#isAtRest() ? (left_out + 1) % LEFT_OUT : 0;
      if (left_out > 0) return;
      for (const job of this.#jobs)
        if (this.#stateOf(job) === 'ENABLED' && this.#options.isReady(job.topic)) this.#publish(job);
    }, this.#options.interval_ms);
  }

  #isAtRest(): boolean {
    const {interval_ms, written_ms} = this.#options;
    return Date.now() - (written_ms() ?? Number.POSITIVE_INFINITY) > REST_AFTER * interval_ms;
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  /** State of the job of the first deployment. */
  state(): State | undefined {
    return this.#jobs.map(job => this.#stateOf(job))[0];
  }

  /** A pause survives a crash of the emulator. */
  #stateOf({setting}: Job): State {
    return this.#options.database.setting(setting) === 'PAUSED' ? 'PAUSED' : 'ENABLED';
  }

  #publish(job: Job): void {
    job.last_at = new Date().toISOString();
    this.#options.publish(job.topic, {data: DATA, attributes: {source: 'scheduler'}});
  }

  #resource(job: Job, request: Request): JsonObject {
    const {project, interval_ms} = this.#options;
    const state = this.#stateOf(job);
    return {
      name: job.name,
      description: `The tick; every ${interval_ms} ms on this machine`,
      schedule: '* * * * *',
      timeZone: 'Etc/UTC',
      state: wantsNumbers(request.query) ? STATE_NUMBERS[state] : state,
      pubsubTarget: {
        topicName: `projects/${project}/topics/${job.topic}`,
        data: DATA,
        attributes: {source: 'scheduler'},
      },
      ...(job.last_at ? {lastAttemptTime: job.last_at, status: {code: 0}} : {}),
    };
  }

  routes(): Route[] {
    const jobs = '/v1/projects/{project}/locations/{location}/jobs';
    /** Pauses an enabled job and resumes a paused one; any other call fails, as Google documents. */
    const turn = (from: State, to: State) =>
      found(job => {
        if (this.#stateOf(job) !== from)
          throw new ApiError(400, `Job.state must be ${from} for this`, {word: 'FAILED_PRECONDITION'});
        this.#options.database.set(job.setting, to);
      });
    const found =
      (work: (job: Job) => void): Handler =>
      request => {
        const job = this.#find(request);
        work(job);
        return {json: this.#resource(job, request)};
      };
    return [
      ['GET', jobs, request => ({json: {jobs: this.#jobs.map(job => this.#resource(job, request))}})],
      ['POST', `${jobs}/{job}:pause`, turn('ENABLED', 'PAUSED')],
      ['POST', `${jobs}/{job}:resume`, turn('PAUSED', 'ENABLED')],
      ['POST', `${jobs}/{job}:run`, found(job => this.#publish(job))],
      ['GET', `${jobs}/{job}`, found(() => {})],
    ];
  }

  #find({params}: Request): Job {
    const name = `projects/${params.project}/locations/${params.location}/jobs/${params.job}`;
    const job = this.#jobs.find(each => each.name === name);
    if (job) return job;
    const names = this.#jobs.map(each => each.name).join(', ');
    throw new ApiError(404, `Job not found: ${name}; the local cloud has ${names}`);
  }
}
