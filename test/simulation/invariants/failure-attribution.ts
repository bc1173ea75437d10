/** Attribution of failures: charges against a stream, the limit that fails it, and the events that clear them. */
import {paths} from '../../../shared/domain/names.ts';
import type {Stream} from '../../../shared/domain/stream/stream.ts';
import type {Document} from '../../../shared/ports.ts';
import type {Context} from '../context.ts';
import type {Lease} from './leases.ts';
import {isWhole} from './progress.ts';
import type {Said, Violations} from './violations.ts';

/** The limits that README and DESIGN promise, repeated here so that the code cannot move them. */
const OWN_FAILURES = 3;
const MACHINES_IN_A_ROW = 5;

export class FailureAttribution {
  readonly #context: Context;
  readonly #violations: Violations;
  /** Requests about streams whose shards were all stored already. */
  readonly #ofWhole = new WeakSet<Said>();

  constructor(context: Context, violations: Violations) {
    this.#context = context;
    this.#violations = violations;
  }

  onAsked(said: Said): void {
    const stream = said.lease && this.#context.store.peek(paths.stream(said.lease.run, said.lease.stream));
    if (stream && isWhole(this.#context, stream)) this.#ofWhole.add(said);
  }

  onStream(path: string, before: Document, after: Document): void {
    const {said} = this.#violations;
    const holder = this.#context.store.peek(paths.worker((before.lease as Lease | null)?.worker ?? ''));
    const known = {
      isCharge: !said && this.#isCharge(String(after.last_error)),
      death: holder ? String(holder.last_death) : null,
      wasWhole: said !== undefined && this.#ofWhole.has(said),
    };
    const breach = breachOf(before as unknown as Stream, after as unknown as Stream, said, known);
    this.#violations.check(breach === undefined, () => `${path} ${breach}: ${after.last_error}`);
  }

  /** A machine is replaced for its own fault, and not for that of its stream. */
  onEndOfLife(name: string, {cause}: Document): void {
    const [, said] = /^its agent said: ([^;]*)/.exec(String(cause)) ?? [];
    this.#violations.check(
      said === undefined || /disk is full|TPU initialization failed/.test(said),
      () => `${name} is replaced for a failure of its stream: ${said}`,
    );
  }

  /** The silent worker that the stream is charged for ends now. */
  #isCharge(last_error: string): boolean {
    const [, name = ''] = /^(\S+) died at work on it: it has said nothing/.exec(last_error) ?? [];
    return this.#context.store.peek(paths.worker(name))?.phase === 'deleting';
  }
}

/**
 * `isCharge`: a silent worker that lost the stream ends now. `death`: the last death of its holder. `wasWhole`: all shards of the
 * stream were stored before the worker said this.
 */
function breachOf(
  before: Stream,
  after: Stream,
  said: Said | undefined,
  {isCharge, death, wasWhole}: {isCharge: boolean; death: string | null; wasWhole: boolean},
): string | undefined {
  const [failures, faults] = [after.failures - before.failures, after.faults - before.faults];
  const given = said?.action === 'release' ? said.outcome : undefined;
  const isMachines = given === 'failed' && said?.failure?.kind === 'infrastructure';
  const isOwn = given === 'completed' ? !wasWhole : given === 'failed' && !isMachines;
  const isSuspect = !said && /has said nothing|has stood still/.test(death ?? '');
  const hasRestarted = !given && /restarted in the middle of it/.test(after.last_error ?? '');
  const isBadHost = /TPU initialization failed/.test(said?.failure?.reason ?? '');
  if (failures > 0 && !(failures === 1 && isOwn)) return 'has a failure that is not its own';
  if (faults > 0 && !((isMachines && !isBadHost) || isSuspect || isCharge || hasRestarted))
    return 'is blamed for what it cannot have done';
  const isGivenBack = before.lease !== null && after.status === 'pending';
  if (isGivenBack && isOwn && failures === 0) return 'has failed, and no failure is counted';
  if (isGivenBack && isMachines && !isBadHost && faults === 0)
    return 'has cost a machine, and no fault is counted';
  if (after.total_shards > before.total_shards && after.faults > 0)
    return 'stored a shard, and is blamed still';
  const isTooMuch = after.failures >= OWN_FAILURES || after.faults >= MACHINES_IN_A_ROW;
  const hasCounted = failures > 0 || faults > 0;
  // A stream that another worker has by now is judged when that worker ends.
  if (hasCounted && after.status !== 'in_progress' && isTooMuch !== (after.status === 'failed'))
    return `is ${after.status} after ${after.failures} failures and ${after.faults} faults`;
  if (before.status === 'failed' && after.status === 'pending' && after.failures + after.faults > 0)
    return 'is tried again with what was held against it';
  return undefined;
}
