import {setTimeout as sleep} from 'node:timers/promises';
import {jobFolder, paths} from '../../shared/domain/names.ts';
import type {Document} from '../../shared/ports.ts';
import type {Where} from '../cloud/connect.ts';
import {type Cloud, withCloud} from '../cloud/send-message.ts';
import {CliError} from '../terminal/errors.ts';
import {print, say} from '../terminal/output.ts';
import {Parts} from '../terminal/output-parts.ts';
import {isEnded, reasonOf} from './job-view.ts';

const FOLLOW_MS = 500;

export async function follow(id: string, options: Where): Promise<void> {
  await withCloud(options, cloud => followJob(cloud, id));
}

const toOutput = (line: string) => print(false, {}, [line]);

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
        `job ${id} has the status ${JSON.stringify(job.status)}, which is no word: mend the field in the console`,
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
      process.exitCode = job.status === 'completed' ? 0 : 1;
      return job;
    }
    await sleep(FOLLOW_MS);
  }
}

/** Number of the newest attempt; 0 without one, and for a value that is no number. */
function epochOf({epoch}: Document): number {
  return typeof epoch === 'number' && Number.isInteger(epoch) ? epoch : 0;
}

function outputFolder(id: string, epoch: number): string {
  return `${jobFolder(id, epoch)}output/`;
}

function stateLine(job: Document): string {
  const lease = job.lease as {worker?: string} | null | undefined;
  if (job.status === 'running') return `attempt ${job.epoch} runs on ${lease?.worker ?? 'a worker'}`;
  const last = (job.attempts as Document[] | undefined)?.at(-1);
  if (job.status === 'scheduled' && last)
    return `waits for a worker again, after attempt ${last.epoch}: ${last.cause ?? last.outcome}`;
  return isEnded(job) ? `${job.status}${reasonOf(job)}` : `${job.status}, waits for a worker`;
}

/** Reads the document of a job as it is: an unchecked document may lack every field. */
export async function readJob({store, jobs}: Cloud, id: string): Promise<Document> {
  const job = await store.get(paths.job(jobs, id));
  if (!job) throw new CliError(`there is no job "${id}": \`gleaner jobs list\` lists the newest`);
  return job;
}

/** Prints the stored output of one attempt. */
export async function logs(id: string, {attempt, ...where}: Where & {attempt?: number}): Promise<void> {
  await withCloud(where, cloud => printStored(cloud, id, attempt, toOutput));
}

/** Writes the stored output of an attempt; by default of the newest. */
export async function printStored(
  cloud: Cloud,
  id: string,
  attempt: number | undefined,
  write: (line: string) => void,
): Promise<void> {
  const job = await readJob(cloud, id);
  const newest = epochOf(job);
  if (newest === 0) throw new CliError(`job ${id} is ${job.status ?? 'pending'}: no worker has run it yet`);
  const epoch = attempt ?? newest;
  if (epoch > newest) throw new CliError(`job ${id} has no attempt ${epoch}: the newest is ${newest}`);
  let lines = 0;
  const parts = new Parts(cloud.objects, outputFolder(id, epoch), line => {
    lines++;
    write(line);
  });
  await parts.end();
  if (lines === 0) say(`attempt ${epoch} of job ${id} has written no output`);
}
