/** Explains why a run, a stream, a job or a TPU waits, from the constraints that the last tick stored. */

import {BY_BUDGET} from '../../shared/domain/billing/budget.ts';
import {isFinal, MAX_MACHINE_FAILURES} from '../../shared/domain/job/lifecycle.ts';
import {type Constraint, constraint} from '../../shared/domain/records/constraint.ts';
import type {Job} from '../../shared/domain/records/job.ts';
import type {Pool} from '../../shared/domain/records/pool.ts';
import type {Run} from '../../shared/domain/records/run.ts';
import type {Stream} from '../../shared/domain/records/stream.ts';
import type {Worker} from '../../shared/domain/records/worker.ts';
import {modelConstraint} from '../../shared/domain/run/model-failures.ts';
import {standstillOf, tpuConstraint} from '../../shared/domain/worker/tpu-constraint.ts';

/** Undefined: the run has ended well, or moves. */
export function explainRun(run: Run): Constraint | undefined {
  const {status, reason} = run;
  switch (status) {
    case 'active':
      return run.waits ?? (run.spec === null ? constraint('no-spec', run.run) : undefined);
    case 'paused':
      return modelConstraint(run) ?? pauseConstraint(run);
    case 'failed':
      if (run.spec === null) return constraint('no-spec', run.run, reason);
      return constraint(
        'failed',
        canBeRetried(run) ? `run ${run.run}` : `each sample of run ${run.run}`,
        reason,
      );
    case 'completed':
    case 'stopped':
      return undefined;
    default:
      return status satisfies never;
  }
}

/** A budget that allows more by now has another reason. */
function pauseConstraint({run, pool, reason, paused_at: since_at}: Run): Constraint {
  if (!reason?.startsWith(BY_BUDGET)) return constraint('paused', run, reason, {since_at});
  const why = reason.slice(BY_BUDGET.length);
  const shared = why.startsWith('of the pool') ? `pool ${pool}` : 'the month';
  return constraint('budget', why.startsWith('of the ') ? shared : `run ${run}`, why, {since_at});
}

/** False for a run whose samples were all rejected: its streams are complete. */
const canBeRetried = ({streams_failed, certain_failure}: Run) =>
  streams_failed > 0 || certain_failure !== null;

/** `holder`: the worker with its lease. */
export function explainStream(stream: Stream, run: Run, holder: Worker | undefined): Constraint | undefined {
  const {status, last_error} = stream;
  switch (status) {
    case 'pending':
      return explainRun(run) ?? (run.status === 'stopped' ? undefined : constraint('pool-full', run.pool));
    case 'in_progress':
      return holder && (standstillOf(holder) ?? ofSilence(run, holder));
    case 'failed':
      return constraint('failed', `stream ${stream.run}/${stream.stream}`, last_error);
    case 'completed':
      return undefined;
    default:
      return status satisfies never;
  }
}

/** The last tick found the worker, or its zone, silent. */
function ofSilence({waits}: Run, {name, zone}: Worker): Constraint | undefined {
  const about = {away: name, 'silence-guard': zone}[String(waits?.kind)];
  return waits && waits.about === about ? waits : undefined;
}

export function explainJob(
  job: Job,
  pool: Pool | undefined,
  holder: Worker | undefined,
): Constraint | undefined {
  if (job.status === 'failed') return constraint('failed', `job ${job.job}`, job.error);
  if (isFinal(job)) return undefined;
  if (job.status === 'running') return holder && standstillOf(holder);
  if (!pool) return constraint('unreadable', `the document of pool ${job.pool}`);
  return withMachineFailures(pool.jobs_wait ?? undefined, job);
}

/** A pool whose machines fail one after the other looks like one that is short of TPUs. */
function withMachineFailures(wait: Constraint | undefined, {job, machine_failures, error}: Job) {
  if (machine_failures === 0) return wait;
  const failures = `${machine_failures} of at most ${MAX_MACHINE_FAILURES} machines failed at it, the last one because ${error}`;
  const evidence = wait?.evidence ? `${wait.evidence}; ${failures}` : failures;
  return {...(wait ?? constraint('coming', `job ${job}`)), evidence};
}

/** Undefined: the TPU works, or no work needs it. */
export function explainTpu(worker: Worker, pool: Pool | undefined, now: number): Constraint | undefined {
  return tpuConstraint(worker, pool?.zones_wait[worker.zone], now);
}
