/** Tokens of a host for Cloud Storage: one for its incarnation, one for each lease, one for each command, and one for the process of a job. */

import {weightsOf} from '../../domain/billing/ceilings.ts';
import {hasHostEnded} from '../../domain/records/exec.ts';
import type {Worker} from '../../domain/records/worker.ts';
import {
  rightsOfExec,
  rightsOfHost,
  rightsOfJob,
  rightsOfJobProcess,
  rightsOfStream,
} from '../../domain/requests/object-rights.ts';
import {advise, ok} from '../../domain/requests/requests.ts';
import {holds, saysItHas} from '../../domain/stream/lease.ts';
import type {Deps} from '../deps.ts';
import {execHostRecords, runRecords, streamRecords} from '../documents/documents.ts';
import {jobRecords} from '../documents/job-documents.ts';
import type {AgentRequest} from './answers.ts';
import {checked} from './authenticate.ts';

/** Returns a token that is valid only for the objects of the named lease. Refuses a lease that the worker does not hold. */
export const answerToken = checked('token', async (deps, worker, request) => {
  const rights = await rightsFor(deps, worker, request);
  if (rights) return {answer: ok({action: 'token', ...(await deps.tokens.issue(rights))})};
  return {answer: advise('stop', `${worker.name} does not hold this lease any more`, 409)};
});

/** Rights that the request may have. Undefined: the worker does not hold the lease, or the host does not have the command. */
async function rightsFor(deps: Deps, worker: Worker, {lease, host, ...request}: AgentRequest<'token'>) {
  const {logs_bucket, checkpoints_bucket} = deps.config;
  const buckets = {bucket: deps.objects.bucket, logs_bucket, checkpoints_bucket};
  if (lease === null) return rightsOfHost(worker, buckets);
  if ('exec' in lease) {
    const found = await execHostRecords.get(deps.store, lease.exec, worker.name, host);
    const isOpen = found?.incarnation === worker.incarnation && !hasHostEnded(found);
    return isOpen ? rightsOfExec(lease.exec, worker, host, buckets) : undefined;
  }
  const claim = {worker: worker.name, incarnation: worker.incarnation, epoch: lease.epoch};
  if ('job' in lease) {
    const isOfAgent = request.for === 'agent';
    if (isOfAgent && saysItHas(worker, lease)) return rightsOfJob(lease, buckets);
    const job = await jobRecords.get(deps, deps.store, lease.job);
    if (job === undefined || !holds(job, claim)) return undefined;
    return isOfAgent ? rightsOfJob(lease, buckets) : rightsOfJobProcess(job, buckets);
  }
  const isHeld = async () => {
    const stream = await streamRecords.get(deps.store, lease.run, lease.stream);
    return stream !== undefined && holds(stream, claim);
  };
  if (!(saysItHas(worker, lease) || (await isHeld()))) return undefined;
  const run = await runRecords.get(deps.store, lease.run);
  return run && rightsOfStream(lease, weightsOf(run.spec ?? {}), buckets);
}
