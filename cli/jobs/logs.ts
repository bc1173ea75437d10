import {type Cloud, withCloud} from '../../client/cloud/cloud.ts';
import type {CloudOptions} from '../../client/connection/connect.ts';
import {CliError} from '../../client/text/errors.ts';
import {say} from '../../client/text/output.ts';
import {partsIn} from '../../client/text/output-parts.ts';
import {findOutput, listHosts} from '../../client/views/attempt-files.ts';
import {epochOf, readJob} from '../../client/views/jobs.ts';
import {toOutput} from './follow.ts';

type Part = {attempt?: number | undefined; host?: number | undefined};

/** Prints the stored output of one host of an attempt. */
export async function logs(id: string, {attempt, host, ...options}: CloudOptions & Part): Promise<void> {
  await withCloud(options, cloud => printStored(cloud, id, {attempt, host}, toOutput));
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
    throw new CliError(
      `There is no output of job ${id}: it is ${job.status ?? 'pending'}, and no worker has run it`,
    );
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
