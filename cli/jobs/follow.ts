/** `gleaner jobs follow` and `logs`. */
import {setTimeout as sleep} from 'node:timers/promises';
import {type Cloud, withCloud} from '../../client/cloud/cloud.ts';
import {findJob} from '../../client/cloud/find-job.ts';
import type {CloudOptions} from '../../client/connection/connect.ts';
import {CliError} from '../../client/text/errors.ts';
import {printText, say} from '../../client/text/output.ts';
import {outputTail, type Parts, partsIn} from '../../client/text/output-parts.ts';
import {findOutput, listHosts} from '../../client/views/attempt-files.ts';
import {endLines, reasonOf, workersOf} from '../../client/views/job-view.ts';
import {epochOf, readJob} from '../../client/views/jobs.ts';
import {isFinal} from '../../shared/domain/job/lifecycle.ts';
import {FIRST_HOST} from '../../shared/domain/worker/hosts.ts';
import type {Document, Value} from '../../shared/ports/ports.ts';

const FOLLOW_MS = 500;
/** Lines of a failed host that are shown beside the output of host 0. */
const HOST_LINES = 20;

export async function follow(id: string, options: CloudOptions): Promise<void> {
  await withCloud(options, async cloud => followJob(cloud, (await findJob(cloud, id)).id));
}

const toOutput = (line: string) => printText([line]);

/**
 * Prints the output of a job while it comes, on several hosts that of host 0, until the job has ended. Standard error has every change of
 * its state and the failures of the other hosts. Returns the document. Exit code 1: the job did not complete. `caughtUp` is called after
 * each read of the output.
 */
export async function followJob(
  cloud: Cloud,
  id: string,
  write = toOutput,
  caughtUp = () => {},
): Promise<Document> {
  let [lastState, output, epoch]: [string, Output | undefined, number] = ['', undefined, 0];
  let ended: Value | undefined;
  for (;;) {
    const job = await readJob(cloud, id);
    if (typeof (job.status ?? 'pending') !== 'string')
      throw new CliError(
        `Failed to follow job ${id}: its status ${JSON.stringify(job.status)} is not a text; correct the field in the console`,
      );
    const now = epochOf(job);
    if (now !== epoch) {
      await output?.end();
      output = outputOf(cloud, id, now, write);
      epoch = now;
    }
    // The state is read before the output: the output of an ended attempt is complete.
    if (isFinal(job)) await output?.end();
    else await output?.read();
    await output?.sayFailures(job);
    caughtUp();
    const last = isFinal(job) ? undefined : lastAttempt(job);
    if (last && last.epoch !== ended) say(`${id}: attempt ${last.epoch} ended${reasonOf(last)}`);
    ended = last?.epoch;
    const state = stateLine(job);
    if (state !== lastState) say(`${id}: ${state}`);
    lastState = state;
    if (isFinal(job)) {
      for (const line of endLines(id, job)) say(line);
      process.exitCode = job.status === 'completed' ? 0 : 1;
      return job;
    }
    await sleep(FOLLOW_MS);
  }
}

type Output = ReturnType<typeof outputOf>;

/** Output of an attempt: that of its first host, and failures of the others. */
function outputOf({objects}: Cloud, id: string, epoch: number, write: (line: string) => void) {
  let parts: Parts | undefined;
  const reportedHosts = new Set<string>();
  const found = async () => {
    const folder = parts ? undefined : await findOutput(objects, id, epoch);
    if (folder !== undefined) parts = partsIn(objects, folder, write);
    return parts;
  };
  return {
    read: async () => (await found())?.read(),
    end: async () => (await found())?.end(),
    /** Says once how each further host failed, with the end of its output. A host that lost another one has nothing to add. */
    async sayFailures(job: Document): Promise<void> {
      if (epochOf(job) !== epoch) return;
      for (const [host, end] of Object.entries((job.ends ?? {}) as Record<string, Document>)) {
        if (Number(host) === FIRST_HOST || end.outcome !== 'failed' || reportedHosts.has(host)) continue;
        reportedHosts.add(host);
        say(`${id}: host ${host} failed${reasonOf(end)}`);
        if (end.cause === 'peer') continue;
        const folder = await findOutput(objects, id, epoch, Number(host));
        const lines = folder ? await outputTail(objects, folder, HOST_LINES) : [];
        for (const line of lines) say(`host ${host} | ${line}`);
      }
    },
  };
}

function lastAttempt({attempts}: Document): Document | undefined {
  return (attempts as Document[] | undefined)?.at(-1);
}

function stateLine(job: Document): string {
  if (job.status === 'running')
    return `attempt ${job.epoch} runs on ${workersOf((job.lease ?? {}) as Document).join(', ') || 'a worker'}`;
  const why = typeof job.reason === 'string' ? `: ${job.reason}` : '';
  if (job.status === 'scheduled' && lastAttempt(job)) return `waits for a worker again${why}`;
  return isFinal(job) ? `${job.status}${reasonOf(job)}` : `${job.status}, waits for a worker${why}`;
}

type Part = {attempt?: number | undefined; host?: number | undefined};

/** Prints the stored output of one host of an attempt. */
export async function logs(id: string, {attempt, host, ...options}: CloudOptions & Part): Promise<void> {
  await withCloud(options, async cloud =>
    printStored(cloud, (await findJob(cloud, id)).id, {attempt, host}, toOutput),
  );
}

/** Writes the stored output of a host of an attempt; by default of host 0 of the newest attempt. */
export async function printStored(
  cloud: Cloud,
  id: string,
  {attempt, host}: Part,
  write: (line: string) => void,
): Promise<void> {
  const job = await readJob(cloud, id);
  const newest = epochOf(job);
  if (newest === 0)
    throw new CliError(`Job ${id} has no output: it is ${job.status ?? 'pending'}, and no worker has run it`);
  const epoch = attempt ?? newest;
  if (epoch > newest)
    throw new CliError(`There is no attempt ${epoch} of job ${id}: the newest is ${newest}`);
  const folder = await findOutput(cloud.objects, id, epoch, host);
  if (folder !== undefined) return partsIn(cloud.objects, folder, write).end();
  const hosts = await listHosts(cloud.objects, id, epoch);
  const where = host === undefined ? '' : ` on host ${host}`;
  const others = hosts.length === 0 ? '' : `; hosts with output: ${hosts.join(', ')}`;
  say(`attempt ${epoch} of job ${id} has written no output${where}${others}`);
}
