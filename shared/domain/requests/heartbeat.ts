import {workerEvent} from '../billing/cost.ts';
import type {BucketRegion} from '../billing/network.ts';
import {endAttempt, endByMachine} from '../job/lifecycle.ts';
import {leasedWork, parseJobWork} from '../names.ts';
import type {Job} from '../records/job.ts';
import type {RequestWrites, WorkLease} from '../records/request-writes.ts';
import {isOpen, type Run} from '../records/run.ts';
import type {SourceReport} from '../records/source.ts';
import type {Stream} from '../records/stream.ts';
import {type Host, NO_WORK, type Received, type Worker, withoutWork} from '../records/worker.ts';
import {
  chargeSuspect,
  type Holder,
  holds,
  isHeldBy,
  RESTARTED,
  returnedStream,
  saysItHas,
} from '../stream/lease.ts';
import {iso} from '../time.ts';
import {bootingHosts, FIRST_HOST, hostText} from '../worker/hosts.ts';
import {nodeStanding} from '../worker/provider-states.ts';
import {withReceived} from './downloads.ts';
import {heardFrom, heardFromHost, leaseFieldsOf} from './heard-from.ts';
import {advise, notWantedText, ok, type RequestDecision} from './requests.ts';

export type Heartbeat = Holder & {
  phase: string;
  /** Step of the boot while the phase is `setup`. */
  step?: string | undefined;
  lease: WorkLease | null;
  progress: Pick<
    Worker,
    'samples_done' | 'samples_total' | 'tokens_done' | 'shards_done' | 'tokens_per_s' | 'waits_for'
  > | null;
  source_report?: Omit<SourceReport, 'at'> | null | undefined;
  host: number;
  received?: Received | undefined;
};

/**
 * Documents of a heartbeat. `job`, or `stream` and `run`: the claimed work, read only if the worker's document does not prove the lease.
 * `suspected`: the stream that the worker lost before its host restarted. `suspectedRun`: its run, if the restart fails the stream.
 */
export type HeartbeatState = {
  worker: Worker;
  job?: Job | undefined;
  isJobLeftAlone?: boolean;
  stream?: Stream | undefined;
  run?: Run | undefined;
  suspected?: Stream | undefined;
  suspectedRun?: Run | undefined;
};

/**
 * Renews the lease that the worker claims, and records its progress. A heartbeat with no lease or an older one was sent before the worker
 * received its last grant: it releases nothing.
 */
export function decideHeartbeat(
  state: HeartbeatState,
  request: Heartbeat,
  now: number,
  {lease_s, region}: {lease_s: number; region: BucketRegion},
): RequestDecision {
  const {worker, run, suspected, suspectedRun} = state;
  const {lease, phase, step, progress, source_report} = request;
  const isHeld = lease !== null && provesLease(state, request, lease);
  const work = workAfter(state, lease, isHeld, now);
  const claimed_at = hasRestarted(worker, request) ? null : work.claimed_at;
  const spoke = heardFrom(worker, {...NO_WORK, ...progress, activity: phase, step, ...work, claimed_at}, now);
  const heard = withReceived(spoke, request.host, request.received, region);
  const charged = suspected && chargeSuspect(suspected, worker, RESTARTED, now);
  return {
    answer: ok({
      ...verdict(heard, lease, isHeld, run).body,
      lease_expires_at: isHeld ? iso(now + lease_s * 1000) : null,
      lease: jobLeaseOf(heard),
      execs: heard.execs,
      source_version: heard.source_version,
    }),
    writes: {
      worker: source_report ? {...heard, source_report: {...source_report, at: iso(now)}} : heard,
      ...(charged && charged !== suspected ? returnedStream(charged, suspectedRun, now) : {}),
      ...faultEvents(worker, heard),
    },
  };
}

/** The event of a fault that the control plane has found. A restart, which may have an event too, reports no fault. */
function faultEvents(before: Worker, heard: Worker): Pick<RequestWrites, 'events'> {
  const {name, fault} = heard;
  if (fault === null || fault === before.fault) return {};
  return {events: [workerEvent(heard, `${name} is replaced: ${fault}`)]};
}

/** The job that the slice has now: a host whose attempt is over stops its process, and a host without one joins. */
function jobLeaseOf({work, epoch}: Worker): {job: string; epoch: number} | null {
  const job = parseJobWork(work);
  return job === undefined || epoch === null ? null : {job, epoch};
}

/**
 * A heartbeat of a host other than host 0. It proves that this host lives. It changes no lease, unless the host restarted during an attempt.
 * Repeated messages are rarely written, because all hosts of a slice share one document.
 */
export function decideHostHeartbeat(
  {worker, job, others = []}: Pick<HeartbeatState, 'worker' | 'job'> & {others?: readonly Worker[]},
  request: Heartbeat,
  now: number,
  {silent_s, region}: {silent_s: number; region: BucketRegion},
): RequestDecision {
  const {host, lease, phase, received, source_report} = request;
  const isHeld = lease !== null && saysItHas(worker, lease);
  const isRestart = bootsAfterStart(worker, request);
  const said = {phase, ...readyCode(source_report)};
  const heard = heardFromHost(worker, host, said, silent_s, now);
  const billed = heard === worker ? worker : withReceived(heard, host, received, region);
  const after = isRestart ? bootsAgain(billed, now) : billed;
  const {execs, source_version} = after;
  const error = `${hostText(host, worker.host_count)} restarted in the middle of it`;
  const end = endByMachine(worker, error);
  return {
    answer: ok({
      ...verdict(after, lease, isHeld && !isRestart, undefined).body,
      ...{lease_expires_at: null, lease: jobLeaseOf(after), execs, source_version},
    }),
    writes: {
      ...(after === worker ? {} : {worker: after}),
      ...faultEvents(worker, after),
      ...(isRestart && job && isHeldBy(job, worker)
        ? {
            endedJob: {before: job, after: endAttempt(job, end, worker.usd_per_hour, now)},
            members: others.map(withoutWork),
          }
        : {}),
    },
  };
}

/** The code that is ready on a host, or why it is not. A report from the middle of a preparation changes nothing. */
function readyCode(report: Heartbeat['source_report']): Partial<Host> {
  if (!report || report.status === 'preparing') return {};
  const source_error = report.status === 'failed' ? (report.error ?? 'without a reason') : null;
  return {source_version: report.version, source_error};
}

/** The worker of a slice in which a host boots again: the slice is up when all of its hosts are. */
function bootsAgain(worker: Worker, now: number): Worker {
  if (worker.phase === 'draining') return withoutWork(worker);
  return {...withoutWork(worker), phase: 'booting', phase_since_at: iso(now)};
}

/** True if the host restarted after its slice was up. A restart for Google's repair does not count, because it is no evidence against the work. */
export function hasRestarted(worker: Worker, request: Pick<Heartbeat, 'phase' | 'host'>): boolean {
  return bootsAfterStart(worker, request) && nodeStanding(worker) !== 'mending';
}

/** True if a host boots in a slice that was up, whatever the cause. */
export function bootsAfterStart(worker: Worker, {phase, host}: Pick<Heartbeat, 'phase' | 'host'>): boolean {
  const isUp = host === FIRST_HOST ? worker.phase !== 'booting' : !bootingHosts(worker).includes(host);
  return phase === 'setup' && isUp;
}

/** True if the worker holds the lease. For a stream, its own document proves that; a job may have been deleted by a person. */
function provesLease(
  {worker, job, isJobLeftAlone, stream, run}: HeartbeatState,
  request: Heartbeat,
  lease: WorkLease,
): boolean {
  const {worker: name, incarnation} = request;
  const claim = {worker: name, incarnation, epoch: lease.epoch};
  if ('job' in lease && !isJobLeftAlone) return job !== undefined && holds(job, claim);
  if (saysItHas(worker, lease)) return true;
  return stream !== undefined && run !== undefined && isOpen(run) && holds(stream, claim);
}

function workAfter({worker, run}: HeartbeatState, lease: WorkLease | null, isHeld: boolean, now: number) {
  if (lease && isHeld) {
    const drains = run ? run.status === 'paused' : worker.drains;
    const yields_to = saysItHas(worker, lease) ? worker.yields_to : null;
    return {work: leasedWork(lease), epoch: lease.epoch, claimed_at: iso(now), drains, yields_to};
  }
  // The job was deleted, so its worker has no work.
  if (lease && 'job' in lease && saysItHas(worker, lease)) return NO_WORK;
  return leaseFieldsOf(worker);
}

function verdict(worker: Worker, lease: WorkLease | null, isHeld: boolean, run: Run | undefined) {
  if (lease && !isHeld)
    return advise('stop', `the lease of ${leasedWork(lease)} is over: ${endText(lease, run)}`);
  if (worker.drains && lease && 'job' in lease) return advise('cancel', 'a person cancelled the job');
  // A host that has not joined the attempt of its slice yet, or has finished before the others, keeps waiting for its end.
  const isAwaited = lease === null && jobLeaseOf(worker) !== null;
  if (worker.phase === 'draining' && !isAwaited)
    return advise(lease ? 'drain' : 'exit', notWantedText(worker.name, worker.incarnation));
  if (worker.drains && lease && 'run' in lease) return advise('drain', `run ${lease.run} is paused`);
  if (worker.yields_to !== null && lease && 'run' in lease)
    return advise('drain', `job ${worker.yields_to} waits for a worker`);
  return advise('continue', '');
}

function endText(lease: WorkLease, run: Run | undefined): string {
  if ('job' in lease) return 'it has ended, or another worker runs it';
  if (!run || isOpen(run)) return 'another worker holds it, or it was released';
  return `the run is ${run.status}`;
}
