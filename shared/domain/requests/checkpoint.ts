/** A version of the checkpoint of a job that one host has stored, or why it stores none. */
import {withProblem, withVersion} from '../job/checkpoint.ts';
import {processesOf, processOf} from '../job/lifecycle.ts';
import type {HostVersion} from '../records/checkpoint.ts';
import type {Job} from '../records/job.ts';
import {holds} from '../stream/lease.ts';
import {type Finish, lostJob} from './finish-job.ts';
import {advise, type RequestDecision} from './requests.ts';

type Checkpoint = Omit<Finish, 'contradiction'> & {version: HostVersion | null; problem: string | null};

/** Records the version under the lease. */
export function decideCheckpoint(job: Job | undefined, request: Checkpoint, now: number): RequestDecision {
  const {lease, host, version, problem} = request;
  const claim = {worker: request.worker, incarnation: request.incarnation, epoch: lease.epoch};
  if (!job?.lease || !holds(job, claim)) return {answer: lostJob(request)};
  const answer = advise('continue', '');
  const told = problem === null ? job : withProblem(job, problem, now);
  if (version === null) return {answer, writes: {job: told}};
  const place = {index: processOf(job.lease, claim, host), processes: processesOf(job.lease)};
  const next = withVersion({...told, lease: job.lease}, place, version, now);
  const isMoved = next.checkpoint_state?.complete !== job.checkpoint_state?.complete;
  return {answer, writes: {job: next}, ...(isMoved ? {sweeps: job.job} : {})};
}
