import {type Cloud, withCloud} from '../../client/cloud/cloud.ts';
import {findJob} from '../../client/cloud/find-job.ts';
import type {CloudOptions} from '../../client/connection/connect.ts';
import {type LogOptions, runLogs, tpuLogs} from '../../client/logs/agent-logs.ts';
import {Tail} from '../../client/logs/tail.ts';
import {type Kinds, kindOf} from '../../client/logs/target.ts';
import {UsageError} from '../../client/text/errors.ts';
import {print} from '../../client/text/output.ts';
import {followJob, printStored} from '../jobs/follow.ts';

/** Prints the log of a run, a TPU or a job. */
export async function logs(name: string, options: CloudOptions & Kinds & LogOptions): Promise<void> {
  await withCloud(options, async cloud => {
    const kind = await kindOf(cloud, name, options);
    if (kind !== 'tpu' && options.incarnation !== undefined)
      throw new UsageError(`--incarnation needs the name of a TPU, and ${name} is a ${kind}`);
    switch (kind) {
      case 'run':
        return runLogs(cloud, name, options);
      case 'tpu':
        return tpuLogs(cloud, name, options);
      case 'job':
        return jobLogs(cloud, name, options);
      default:
        return kind satisfies never;
    }
  });
}

async function jobLogs(cloud: Cloud, given: string, options: LogOptions): Promise<void> {
  const {follow, tail, since, json} = options;
  if (since !== undefined)
    throw new UsageError('The output of a job has no times: give --tail in place of --since');
  const {id: job} = await findJob(cloud, given);
  const lines = new Tail<string>(tail, text => print<'logs'>(json, {job, text}, [text]));
  const add = (line: string) => lines.add(line);
  if (follow) await followJob(cloud, job, add, () => lines.flush());
  else {
    await printStored(cloud, job, {}, add);
    lines.flush();
  }
}
