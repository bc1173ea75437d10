import {setTimeout as sleep} from 'node:timers/promises';
import {jobFolder} from '../../shared/domain/names.ts';
import type {Document} from '../../shared/ports.ts';
import {type Cloud, withCloud} from '../cloud/cloud.ts';
import type {CloudOptions} from '../cloud/connect.ts';
import {CliError} from '../terminal/errors.ts';
import {printText, say} from '../terminal/output.ts';
import {Parts} from '../terminal/output-parts.ts';
import {epochOf, readJob} from '../views/jobs.ts';
import {endLines, isEnded, reasonOf} from './job-view.ts';

const FOLLOW_MS = 500;

export async function follow(id: string, options: CloudOptions): Promise<void> {
  await withCloud(options, cloud => followJob(cloud, id));
}

export const toOutput = (line: string) => printText([line]);

/**
 * Prints the output of a job while it comes, and every change of its state on standard error, until the job has ended. Returns its
 * document. Exit code 1: the job did not complete. `caughtUp` is called after each read of the output.
 */
export async function followJob(
  cloud: Cloud,
  id: string,
  write = toOutput,
  caughtUp = () => {},
): Promise<Document> {
  let [said, parts, epoch]: [string, Parts | undefined, number] = ['', undefined, 0];
  for (;;) {
    const job = await readJob(cloud, id);
    if (typeof (job.status ?? 'pending') !== 'string')
      throw new CliError(
        `Failed to follow job ${id}: its status ${JSON.stringify(job.status)} is not a text; correct the field in the console`,
      );
    const now = epochOf(job);
    if (now !== epoch) {
      await parts?.end();
      parts = new Parts(cloud.objects, outputFolder(id, now), write);
      epoch = now;
    }
    // The state is read before the output: the output of an ended attempt is complete.
    if (isEnded(job)) await parts?.end();
    else await parts?.read();
    caughtUp();
    const state = stateLine(job);
    if (state !== said) say(`${id}: ${state}`);
    said = state;
    if (isEnded(job)) {
      for (const line of endLines(id, job)) say(line);
      process.exitCode = job.status === 'completed' ? 0 : 1;
      return job;
    }
    await sleep(FOLLOW_MS);
  }
}

export function outputFolder(id: string, epoch: number): string {
  return `${jobFolder(id, epoch)}output/`;
}

function stateLine(job: Document): string {
  const lease = job.lease as {worker?: string} | null | undefined;
  if (job.status === 'running') return `attempt ${job.epoch} runs on ${lease?.worker ?? 'a worker'}`;
  const last = (job.attempts as Document[] | undefined)?.at(-1);
  const why = typeof job.reason === 'string' ? `: ${job.reason}` : '';
  if (job.status === 'scheduled' && last)
    return `waits for a worker again, after attempt ${last.epoch} (${last.cause ?? last.outcome})${why}`;
  return isEnded(job) ? `${job.status}${reasonOf(job)}` : `${job.status}, waits for a worker${why}`;
}
