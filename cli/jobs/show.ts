import {withCloud} from '../cloud/cloud.ts';
import type {CloudOptions} from '../cloud/connect.ts';
import {print} from '../terminal/output.ts';
import {jobLines, readJob} from './job-view.ts';
import {readWaits} from './job-wait.ts';

export async function show(id: string, options: CloudOptions): Promise<void> {
  await withCloud(options, async cloud => {
    const job = await readJob(cloud, id);
    const waitOf = await readWaits(cloud.store);
    print<'jobs show'>(options.json, {id, ...job}, jobLines(id, job, waitOf(job)));
  });
}
