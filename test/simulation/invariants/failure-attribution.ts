/** Checks the charges against a stream: failures and faults, their limits, and the events that clear them. */
import {paths} from '../../../shared/domain/names.ts';
import type {Stream} from '../../../shared/domain/records/stream.ts';
import type {Document} from '../../../shared/ports/ports.ts';
import type {Lease} from './leases.ts';
import {isWhole} from './progress.ts';
import {Check, streamLeaseOf, type WorkerRequest} from './violations.ts';

/** The limits in the README, repeated here so that a changed limit in the code is a violation. */
const OWN_FAILURES = 3;
const MACHINES_IN_A_ROW = 5;
const TRIES_OF_A_BROKEN_MODEL = 1;

export class FailureAttribution extends Check {
  /** Requests whose stream had all its shards in the bucket on arrival. */
  readonly #ofWholeStreams = new WeakSet<WorkerRequest>();

  override onRequest(request: WorkerRequest): void {
    const lease = streamLeaseOf(request);
    const stream = lease && this.context.store.peek(paths.stream(lease.run, lease.stream));
    if (stream && isWhole(this.context, stream)) this.#ofWholeStreams.add(request);
  }

  onStream(path: string, before: Document, after: Document): void {
    const {request} = this.violations;
    const holder = this.context.store.peek(paths.worker((before.lease as Lease | null)?.worker ?? ''));
    const known = {
      isCharge: !request && this.#isCharge(String(after.last_error)),
      death: holder ? String(holder.last_death) : null,
      isForAll: this.#failsAll(String(after.run)),
      wasWhole: request !== undefined && this.#ofWholeStreams.has(request),
    };
    const breach = breachOf(before as unknown as Stream, after as unknown as Stream, request, known);
    if (breach !== undefined) this.breach(`${path} ${breach}: ${after.last_error}`);
  }

  /** A worker is replaced for a fault of its machine, which a job may report, never for a failure of its stream. */
  onIncarnationEnded(name: string, {cause}: Document): void {
    const [, reason] = /^its agent said: ([^;]*)/.exec(String(cause)) ?? [];
    if (reason !== undefined && !/disk is full|TPU initialization failed|TPU not available/.test(reason))
      this.breach(`${name} is replaced for a failure of its stream: ${reason}`);
  }

  /** True if a failure of the model ends the run: no shard proves the model, and no person stopped the run. */
  #failsAll(run: string): boolean {
    const {status, total_shards} = this.context.store.peek(paths.run(run)) ?? {};
    return status !== 'stopped' && total_shards === 0;
  }

  /** True if the silent worker that the error names is being deleted. */
  #isCharge(last_error: string): boolean {
    const [, name = ''] = /^(\S+) died while working on it: it has said nothing/.exec(last_error) ?? [];
    return this.context.store.peek(paths.worker(name))?.phase === 'deleting';
  }
}

/**
 * `isCharge`: a silent worker that lost the stream is being deleted. `death`: the last death of its holder. `isForAll`: no
 * shard of the run proves its model, and no person stopped it. `wasWhole`: all shards were stored before the request.
 */
type Known = {isCharge: boolean; death: string | null; isForAll: boolean; wasWhole: boolean};

/** Compares a stream before and after a commit. */
function breachOf(
  before: Stream,
  after: Stream,
  request: WorkerRequest | undefined,
  {isCharge, death, isForAll, wasWhole}: Known,
): string | undefined {
  const [failures, faults] = [after.failures - before.failures, after.faults - before.faults];
  // An incarnation counts once.
  const holder = before.lease && `${before.lease.worker}/${before.lease.incarnation}`;
  const [hasFailed, hasFaulted] = [before.failed_workers, before.faulted_workers].map(names =>
    names.includes(holder ?? ''),
  );
  const outcome = request?.action === 'release' ? request.outcome : undefined;
  const isInfrastructure = outcome === 'failed' && request?.failure?.kind === 'infrastructure';
  const isOfHub = outcome === 'failed' && request?.failure?.kind === 'hub';
  const isOfModel = outcome === 'failed' && request?.failure?.kind === 'model';
  const isOwn = outcome === 'completed' ? !wasWhole : outcome === 'failed' && !isInfrastructure && !isOfHub;
  const isSuspect = !request && /has said nothing|has made no progress/.test(death ?? '');
  const hasRestarted = !outcome && /restarted in the middle of it/.test(after.last_error ?? '');
  const isBadHost = /TPU initialization failed/.test(request?.failure?.reason ?? '');
  if (failures > 0 && !(failures === 1 && isOwn)) return 'is charged with a failure that it did not cause';
  if (faults > 0 && !((isInfrastructure && !isBadHost) || isSuspect || isCharge || hasRestarted))
    return 'is charged with a fault that it did not cause';
  const isReleased = before.lease !== null && after.status === 'pending';
  if (isReleased && isOwn && failures === 0 && !hasFailed) return 'failed, and no failure is counted';
  if (isReleased && isInfrastructure && !isBadHost && faults === 0 && !hasFaulted)
    return 'was released for a machine fault, and no fault is counted';
  if (after.total_shards > before.total_shards && after.faults > 0)
    return 'stored a shard, and keeps its faults';
  const isCertain = isOfModel && after.total_shards === 0 && isForAll;
  if (isCertain && after.failures > TRIES_OF_A_BROKEN_MODEL)
    return 'is tried again with a model that fails every stream';
  const isOverLimit = after.failures >= OWN_FAILURES || after.faults >= MACHINES_IN_A_ROW || isCertain;
  const hasCounted = failures > 0 || faults > 0;
  // A stream that another worker holds by now is checked when that worker ends.
  if (hasCounted && after.status !== 'in_progress' && isOverLimit !== (after.status === 'failed'))
    return `is ${after.status} after ${after.failures} failures and ${after.faults} faults`;
  if (before.status === 'failed' && after.status === 'pending' && after.failures + after.faults > 0)
    return 'is retried with its old failures or faults';
  return undefined;
}
