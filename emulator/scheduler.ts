import {DEFAULT_DEPLOYMENT, nameIn, tickJobOf} from '../shared/domain/deployment.ts';
import {ApiError} from './http/errors.ts';
import type {Handler, Request, Route} from './http/http.ts';
import type {JsonObject} from './http/json.ts';
import type {CloudDatabase} from './state/database.ts';
import {wantsNumbers} from './tpu/catalog.ts';

export const tickJob = tickJobOf(DEFAULT_DEPLOYMENT);
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
};

type Job = {name: string; topic: string; setting: string; last_at: string | undefined};

/** Cloud Scheduler with one job for each deployment, which publishes to its topic `tick`. The interval is shorter than Google's minute. */
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
    this.#timer = setInterval(() => {
      for (const job of this.#jobs)
        if (!this.#isPaused(job) && this.#options.isReady(job.topic)) this.#publish(job);
    }, this.#options.interval_ms);
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  /** State of the job of the first deployment. */
  state(): 'ENABLED' | 'PAUSED' {
    return this.#jobs.some((job, index) => index === 0 && this.#isPaused(job)) ? 'PAUSED' : 'ENABLED';
  }

  /** True if an operator paused the job. A pause survives a crash of the emulator. */
  #isPaused({setting}: Job): boolean {
    return this.#options.database.setting(setting) === 'PAUSED';
  }

  #publish(job: Job): void {
    job.last_at = new Date().toISOString();
    this.#options.publish(job.topic, {data: DATA, attributes: {source: 'scheduler'}});
  }

  #resource(job: Job, request: Request): JsonObject {
    const {project, interval_ms} = this.#options;
    const isPaused = this.#isPaused(job);
    const state = wantsNumbers(request.query) ? (isPaused ? 2 : 1) : isPaused ? 'PAUSED' : 'ENABLED';
    return {
      name: job.name,
      description: `The tick; every ${interval_ms} ms on this machine`,
      schedule: '* * * * *',
      timeZone: 'Etc/UTC',
      state,
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
    const turn = (to: 'ENABLED' | 'PAUSED') =>
      found(job => {
        const is = this.#isPaused(job) ? 'PAUSED' : 'ENABLED';
        if (is === to) {
          const must = to === 'PAUSED' ? 'ENABLED' : 'PAUSED';
          throw new ApiError(400, `Job.state must be ${must} for this; it is ${is}`, {
            word: 'FAILED_PRECONDITION',
          });
        }
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
      ['POST', `${jobs}/{job}:pause`, turn('PAUSED')],
      ['POST', `${jobs}/{job}:resume`, turn('ENABLED')],
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
