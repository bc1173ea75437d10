/** `gleaner jobs list`, `show`, `cancel`, `retry` and `clear`. */

import {withCloud} from '../../client/cloud/cloud.ts';
import {findJob, type JobFilter} from '../../client/cloud/find-job.ts';
import {apply, outcomeOf, publish, send, sendTo} from '../../client/cloud/send-message.ts';
import type {CloudOptions} from '../../client/connection/connect.ts';
import {UsageError} from '../../client/text/errors.ts';
import {print, table} from '../../client/text/output.ts';
import {jobColumns, jobLines} from '../../client/views/job-view.ts';
import {readJobs, readJobView} from '../../client/views/jobs.ts';
import {CAUSES} from '../../shared/domain/records/causes.ts';
import type {Filter} from '../../shared/ports/ports.ts';
import {requireConsent} from '../terminal/ask.ts';
import {withClock} from '../terminal/progress-clock.ts';

export async function list(options: CloudOptions & JobFilter): Promise<void> {
  await withCloud(options, async cloud => {
    const found = await readJobs(cloud, options);
    const isAll = [options.status, options.pool, options.name].every(each => each === undefined);
    const none = isAll ? 'no jobs yet: `gleaner jobs submit FILE` submits one' : 'no such job';
    const jobs = found.map(({id, job}) => ({...job, id}));
    const {inputs, ...others} = jobColumns;
    const columns = found.some(row => inputs.cell(row) !== '') ? jobColumns : others;
    print<'jobs list'>(options.json, jobs, found.length > 0 ? table(Object.values(columns), found) : [none]);
  });
}

export async function show(given: string, options: CloudOptions): Promise<void> {
  await withCloud(options, async cloud => {
    const {id, job, waits} = await readJobView(cloud, given);
    print<'jobs show'>(options.json, {id, ...job}, jobLines(id, job, waits));
  });
}

/** Sends a message about one job. */
export async function sendAbout(
  action: string,
  given: string,
  {fresh, ...options}: CloudOptions & {fresh?: boolean},
): Promise<void> {
  await withCloud(options, async cloud => {
    const message = {action, job: (await findJob(cloud, given)).id, ...(fresh ? {fresh} : {})};
    await sendTo(cloud, message, options);
  });
}

/** Runs one ended job again, or the jobs that failed for a cause. */
export async function retry(
  job: string | undefined,
  {where, ...options}: CloudOptions & {where?: [name: string, cause: string]; fresh?: boolean},
): Promise<void> {
  if (job !== undefined && where === undefined) return sendAbout('retry', job, options);
  if (job !== undefined || where === undefined)
    throw new UsageError('Give either a job id or --where cause=CAUSE');
  const [name, cause] = where;
  if (name !== 'cause' || !CAUSES.some(known => known === cause))
    throw new UsageError(`--where ${name}=${cause} is unknown: give cause= and one of ${CAUSES.join(', ')}`);
  const {fresh, ...others} = options;
  return send({action: 'retry', where: {cause}, ...(fresh ? {fresh} : {})}, others);
}

const ENDED: Filter[] = [{field: 'status', op: 'in', value: ['completed', 'failed', 'cancelled']}];
const MESSAGE = {action: 'clear'};

/** Deletes the documents of ended jobs after a question. A message deletes some of them, so it is sent until none is left. */
export async function clear(options: CloudOptions): Promise<void> {
  const consequence = 'The documents of all ended jobs are deleted. Their output stays in the bucket.';
  if (!options.dry_run) await requireConsent([consequence], options);
  await withCloud(options, async cloud => {
    if (options.dry_run) return sendTo(cloud, MESSAGE, options);
    const again = async () => outcomeOf(cloud.store, await publish(cloud, 'control', MESSAGE));
    await withClock('ended jobs are being deleted', async clock => {
      await apply(cloud, MESSAGE);
      do clock.what = `${await cloud.store.count(cloud.jobs, ENDED)} ended jobs left, being deleted`;
      while ((await again()).outcome === 'applied');
    });
    const done = 'the documents of all ended jobs are deleted';
    print<'jobs clear'>(options.json, {done}, [done]);
  });
}
