import {revokeLease} from './lease.ts';
import {streamObject} from './names.ts';
import type {Provisioning} from './placement.ts';
import type {Pool} from './pool.ts';
import type {Run} from './run.ts';
import type {Stream} from './stream.ts';
import {iso} from './time.ts';
import type {Worker} from './worker.ts';

export type RunAction = 'start' | 'pause' | 'resume' | 'stop';

/** What may be changed of a run and of a pool while they live. It may change what work costs, never what shards hold. */
export type RunSettings = {priority?: number | undefined; budget_usd?: number | null | undefined};
export type PoolSettings = {
  workers_per_zone?: number | undefined;
  zones?: string[] | undefined;
  provisioning?: Provisioning | undefined;
  budget_usd?: number | null | undefined;
};

/** `if_version`: only if nobody else has changed it since the sender looked. */
export type ControlMessage =
  | {action: RunAction; run: string}
  | {action: 'retry'; run: string; stream?: string | undefined}
  | {action: 'cancel'; run: string; stream: string}
  | {action: 'rebuild'; run?: string | undefined}
  | ({action: 'configure'; run: string; if_version?: number | undefined} & RunSettings)
  | ({action: 'scale'; pool: string; if_version?: number | undefined} & PoolSettings)
  | {action: 'recreate' | 'delete'; worker: string};

/** What becomes of the one document that a message is about. */
export type Decision<T> = {kind: 'applied'; next: T; what: string} | {kind: 'rejected'; reason: string};

/**
 * What a message about a run does. Asking for what is so already is applied and changes nothing, so a repeated message is
 * harmless; what cannot be done is rejected with the reason. `stop` is final.
 */
export function decideRunAction(
  action: RunAction,
  name: string,
  run: Run | undefined,
  now: number,
): Decision<Run> {
  if (!run) return noRun(name);
  const become = (status: Run['status'], what: string): Decision<Run> => ({
    kind: 'applied',
    next: run.status === status ? run : {...run, status, updated_at: iso(now)},
    what: run.status === status ? `${name} was ${status} already` : what,
  });
  const refuse = (): Decision<Run> => ({
    kind: 'rejected',
    reason: `run "${name}" is ${run.status}: ${action} does nothing to it${run.status === 'cancelled' ? ', because a stop is final; drop the streams as a new run' : ''}`,
  });
  switch (action) {
    case 'start':
    case 'resume':
      if (run.status === 'active' || run.status === 'paused')
        return become('active', action === 'start' ? `${name} started` : `${name} resumed`);
      if (action === 'start' && run.status !== 'cancelled')
        return {kind: 'applied', next: run, what: `${name} is ${run.status}: nothing is left to start`};
      return refuse();
    case 'pause':
      if (run.status === 'active' || run.status === 'paused') return become('paused', `${name} paused`);
      return refuse();
    case 'stop':
      if (run.status === 'completed') return refuse();
      if (run.status === 'cancelled') return become('cancelled', '');
      return {
        kind: 'applied',
        next: {...run, status: 'cancelled', stopped_at: iso(now), updated_at: iso(now)},
        what: `${name} stopped for good`,
      };
    default:
      return action satisfies never;
  }
}

function noRun(name: string): {kind: 'rejected'; reason: string} {
  return {
    kind: 'rejected',
    reason: `there is no run "${name}": drop ${streamObject(name, '000')} first`,
  };
}

/** `recreate`: the slot's TPU is deleted whatever its state and made again, if the pool still wants it then. */
export function decideRecreate(name: string, worker: Worker | undefined): Decision<Worker> {
  if (!worker) return noWorker(name);
  if (worker.phase === 'gone' || worker.phase === 'deleting')
    return {
      kind: 'applied',
      next: {...worker, held: false},
      what: `${name} is ${worker.phase}: it is made again when there is work for it`,
    };
  return {
    kind: 'applied',
    next: {...worker, recreate: true, held: false},
    what: `${name} will be made again`,
  };
}

/** `delete`: the slot's TPU goes, what it had in hand is another's, and it stays away until `recreate`. */
export function decideDelete(name: string, worker: Worker | undefined): Decision<Worker> {
  if (!worker) return noWorker(name);
  return {
    kind: 'applied',
    next: {...worker, held: true, recreate: worker.phase !== 'gone' && worker.phase !== 'deleting'},
    what: `${name} will be deleted and stay away; recreate brings it back`,
  };
}

function noWorker(name: string): {kind: 'rejected'; reason: string} {
  return {kind: 'rejected', reason: `there is no worker "${name}"`};
}

/** `retry`: a parked stream begins anew, with nothing held against it and what it has stored. */
export function decideRetry(stream: Stream, now: number): Decision<Stream> {
  const of = `${stream.run}/${stream.stream}`;
  if (stream.status !== 'failed')
    return {kind: 'rejected', reason: `stream ${of} is ${stream.status}, not failed`};
  if (stream.blocked_reason !== null)
    return {kind: 'rejected', reason: `stream ${of} waits for a rebuild: ${stream.blocked_reason}`};
  // Its worker could only find that out again, on a TPU that costs money.
  if (stream.size_bytes === 0)
    return {kind: 'rejected', reason: `stream ${of} is empty: drop it again with its records`};
  const next = {
    ...stream,
    status: 'pending' as const,
    failures: 0,
    faults: 0,
    last_error: null,
    updated_at: iso(now),
  };
  return {kind: 'applied', next, what: `stream ${of} is tried again`};
}

export const CANCELLED = 'cancelled by a message; retry revives it';

/** The streams that stay cancelled, also when the Store is lost. */
export function cancelledAfter(
  run: Run,
  action: 'retry' | 'cancel',
  streams: readonly string[],
): Run['cancelled_streams'] {
  const others = run.cancelled_streams.filter(stream => !streams.includes(stream));
  return action === 'cancel' ? [...others, ...streams].sort() : others;
}

/** `cancel`: the stream is parked as it is; its worker is told at its next heartbeat. */
export function decideCancel(stream: Stream, now: number): Decision<Stream> {
  const of = `${stream.run}/${stream.stream}`;
  if (stream.status === 'completed') return {kind: 'rejected', reason: `stream ${of} is completed`};
  const next = {
    ...revokeLease(stream, now),
    status: 'failed' as const,
    last_error: CANCELLED,
    updated_at: iso(now),
  };
  return {kind: 'applied', next, what: `stream ${of} is cancelled`};
}

export function decideConfigure(
  name: string,
  run: Run | undefined,
  settings: RunSettings,
  if_version: number | undefined,
  now: number,
): Decision<Run> {
  if (!run) return noRun(name);
  if (run.status === 'cancelled')
    return {kind: 'rejected', reason: `run "${name}" was stopped, and a stop is final`};
  const stale = staleFor(`run "${name}"`, run.version, if_version);
  if (stale) return stale;
  const next = {...run, ...given(settings), version: run.version + 1, updated_at: iso(now)};
  return {kind: 'applied', next, what: `${name} has ${told(settings)}, version ${next.version}`};
}

export function decideScale(
  pool: Pool,
  settings: PoolSettings,
  if_version: number | undefined,
): Decision<Pool> {
  const stale = staleFor(`pool "${pool.pool}"`, pool.version, if_version);
  if (stale) return stale;
  const next = {...pool, ...given(settings), version: pool.version + 1};
  return {kind: 'applied', next, what: `pool ${pool.pool} has ${told(settings)}, version ${next.version}`};
}

function staleFor(what: string, version: number, if_version: number | undefined) {
  if (if_version === undefined || if_version === version) return undefined;
  const reason = `${what} is at version ${version}, not ${if_version}: look at it and send the message again`;
  return {kind: 'rejected' as const, reason};
}

function given<T extends object>(settings: T): {[K in keyof T]: Exclude<T[K], undefined>} {
  const present = Object.entries(settings).filter(([, value]) => value !== undefined);
  return Object.fromEntries(present) as {[K in keyof T]: Exclude<T[K], undefined>};
}

function told(settings: object): string {
  return Object.entries(given(settings))
    .map(([key, value]) => `${key} ${JSON.stringify(value)}`)
    .join(', ');
}
