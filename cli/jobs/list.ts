import {withCloud} from '../cloud/cloud.ts';
import type {CloudOptions} from '../cloud/connect.ts';
import {table} from '../terminal/format.ts';
import {print} from '../terminal/output.ts';
import {type JobFilter, readJobs} from '../views/jobs.ts';
import {JOB_COLUMNS, jobRow} from './job-view.ts';

export async function list(options: CloudOptions & JobFilter): Promise<void> {
  await withCloud(options, async cloud => {
    const found = await readJobs(cloud, options);
    const isAll = options.status === undefined && options.pool === undefined;
    const none = isAll ? 'no jobs yet: `gleaner jobs submit FILE` submits one' : 'no such job';
    const lines = table(JOB_COLUMNS, found.map(jobRow));
    const jobs = found.map(({id, job}) => ({...job, id}));
    print<'jobs list'>(options.json, jobs, found.length > 0 ? lines : [none]);
  });
}
