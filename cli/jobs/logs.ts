import {type Cloud, withCloud} from '../cloud/cloud.ts';
import type {CloudOptions} from '../cloud/connect.ts';
import {CliError} from '../terminal/errors.ts';
import {say} from '../terminal/output.ts';
import {Parts} from '../terminal/output-parts.ts';
import {epochOf, readJob} from '../views/jobs.ts';
import {outputFolder, toOutput} from './follow.ts';

/** Prints the stored output of one attempt. */
export async function logs(
  id: string,
  {attempt, ...options}: CloudOptions & {attempt?: number},
): Promise<void> {
  await withCloud(options, cloud => printStored(cloud, id, attempt, toOutput));
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
  if (newest === 0)
    throw new CliError(
      `There is no output of job ${id}: it is ${job.status ?? 'pending'}, and no worker has run it`,
    );
  const epoch = attempt ?? newest;
  if (epoch > newest)
    throw new CliError(`There is no attempt ${epoch} of job ${id}: the newest is ${newest}`);
  let lines = 0;
  const parts = new Parts(cloud.objects, outputFolder(id, epoch), line => {
    lines++;
    write(line);
  });
  await parts.end();
  if (lines === 0) say(`attempt ${epoch} of job ${id} has written no output`);
}
