import {withCloud} from '../cloud/cloud.ts';
import type {CloudOptions} from '../cloud/connect.ts';
import {print} from '../terminal/output.ts';
import {readJobView} from '../views/jobs.ts';
import {jobLines} from './job-view.ts';

export async function show(id: string, options: CloudOptions): Promise<void> {
  await withCloud(options, async cloud => {
    const {job, waits} = await readJobView(cloud, id);
    print<'jobs show'>(options.json, {id, ...job}, jobLines(id, job, waits));
  });
}
