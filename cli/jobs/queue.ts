/** `gleaner jobs list`, `show`, `retry` and `clear`. */

import {withCloud} from '../../client/cloud/cloud.ts';
import {apply, outcomeOf, publish, send, sendTo} from '../../client/cloud/send-message.ts';
import type {CloudOptions} from '../../client/connection/connect.ts';
import {UsageError} from '../../client/text/errors.ts';
import {print, table} from '../../client/text/output.ts';
import {jobColumns, jobLines} from '../../client/views/job-view.ts';
import {type JobFilter, readJobs, readJobView} from '../../client/views/jobs.ts';
import {CAUSES} from '../../shared/domain/records/causes.ts';
import {requireConsent} from '../terminal/ask.ts';

export async function list(options: CloudOptions & JobFilter): Promise<void> {
  await withCloud(options, async cloud => {
    const found = await readJobs(cloud, options);
    const isAll = options.status === undefined && options.pool === undefined;
    const none = isAll ? 'no jobs yet: `gleaner jobs submit FILE` submits one' : 'no such job';
    const jobs = found.map(({id, job}) => ({...job, id}));
    print<'jobs list'>(
      options.json,
      jobs,
      found.length > 0 ? table(Object.values(jobColumns), found) : [none],
    );
  });
}

export async function show(id: string, options: CloudOptions): Promise<void> {
  await withCloud(options, async cloud => {
    const {job, waits} = await readJobView(cloud, id);
    print<'jobs show'>(options.json, {id, ...job}, jobLines(id, job, waits));
  });
}

/** Runs one ended job again, or the jobs that failed for a cause. */
export async function retry(
  job: string | undefined,
  {where, ...options}: CloudOptions & {where?: [name: string, cause: string]},
): Promise<void> {
  if ((job === undefined) === (where === undefined))
    throw new UsageError('Give either a job id or --where cause=CAUSE');
  if (where === undefined) return send({action: 'retry', job}, options);
  const [name, cause] = where;
  if (name !== 'cause' || !CAUSES.some(known => known === cause))
    throw new UsageError(`--where ${name}=${cause} is unknown: give cause= and one of ${CAUSES.join(', ')}`);
  return send({action: 'retry', where: {cause}}, options);
}

const MESSAGE = {action: 'clear'};

/** Deletes the documents of ended jobs after a question. A message deletes some of them, so it is sent until none is left. */
export async function clear(options: CloudOptions): Promise<void> {
  const consequence = 'The documents of all ended jobs are deleted. Their output stays in the bucket.';
  if (!options.dry_run) await requireConsent([consequence], options);
  await withCloud(options, async cloud => {
    if (options.dry_run) return sendTo(cloud, MESSAGE, options);
    await apply(cloud, MESSAGE);
    const again = async () => outcomeOf(cloud.store, await publish(cloud, 'control', MESSAGE));
    while ((await again()).outcome === 'applied');
    const done = 'the documents of all ended jobs are deleted';
    print<'jobs clear'>(options.json, {done}, [done]);
  });
}
