import {type Ceilings, whyPoolRefused} from './ceilings.ts';
import {NO_BOOTS, NO_MACHINE_DEATHS} from './fleet/breakers.ts';
import type {Provisioning} from './fleet/placement.ts';
import type {Pool} from './fleet/pool.ts';
import {streamObject} from './names.ts';
import {outdatedText, type Said, splitBySaid, withSaid} from './publish-order.ts';
import type {Run} from './run/run.ts';
import {revokeLease} from './stream/lease.ts';
import type {Stream} from './stream/stream.ts';
import {iso} from './time.ts';
import {hasEnded, type Worker} from './worker/worker.ts';

export type RunAction = 'start' | 'pause' | 'resume' | 'stop';

/** What may be changed of a run and of a pool while they live. It may change what work costs, never what shards hold. */
export type RunSettings = {priority?: number | undefined; budget_usd?: number | null | undefined};
export type PoolSettings = {
  workers_per_zone?: number | undefined;
  zones?: string[] | undefined;
  provisioning?: Provisioning | undefined;
  budget_usd?: number | null | undefined;
};

/**
 * What becomes of the one document that a message is about. The message published last decides each field, in whatever order
 * messages are delivered; `stop` and `cancel` apply however late.
 */
export type Decision<T> = {kind: 'applied'; next: T; what: string} | {kind: 'rejected'; reason: string};

/**
 * What a message about a run does. Asking for what is so already is applied and changes nothing, so a repeated message is
 * harmless; what cannot be done is rejected with the reason. `stop` is final: a completed run stays so, and takes no further stream.
 */
export function decideRunAction(
  action: RunAction,
  name: string,
  run: Run | undefined,
  said_at: string,
  now: number,
): Decision<Run> {
  if (!run) return noRun(name);
  const said = withSaid(run.said, ['status'], said_at);
  const become = (status: Run['status'], what: string): Decision<Run> => {
    if (action !== 'stop' && isOutdated(run, 'status', said_at)) return outdatedBy(run, ['status']);
    const isSame = run.status === status;
    return {
      kind: 'applied',
      next: isSame ? {...run, said} : {...run, said, status, updated_at: iso(now)},
      what: isSame ? `${name} was ${status} already` : what,
    };
  };
  const refuse = (): Decision<Run> => ({
    kind: 'rejected',
    reason: `run "${name}" is ${run.status}: ${action} does nothing to it${run.status === 'cancelled' ? ', because a stop is final; drop the streams as a new run' : ''}`,
  });
  switch (action) {
    case 'start':
    case 'resume':
      if (run.status === 'active' || run.status === 'paused') {
        const decision = become('active', action === 'start' ? `${name} started` : `${name} resumed`);
        if (decision.kind === 'rejected') return decision;
        return {...decision, next: {...decision.next, ...NO_MACHINE_DEATHS}};
      }
      if (action === 'start' && run.status !== 'cancelled')
        return {kind: 'applied', next: run, what: `${name} is ${run.status}: nothing is left to start`};
      return refuse();
    case 'pause':
      if (run.status === 'active' || run.status === 'paused') return become('paused', `${name} paused`);
      return refuse();
    case 'stop':
      if (run.status === 'completed')
        return {
          kind: 'applied',
          next: {...run, said, stopped_at: run.stopped_at ?? iso(now)},
          what: `${name} is completed, and takes no further stream`,
        };
      if (run.status === 'cancelled') return become('cancelled', '');
      return {
        kind: 'applied',
        next: {...run, said, status: 'cancelled', stopped_at: iso(now), updated_at: iso(now)},
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
export function decideRecreate(name: string, worker: Worker | undefined, said_at: string): Decision<Worker> {
  if (!worker) return noWorker(name);
  if (isOutdated(worker, 'held', said_at)) return outdatedBy(worker, ['held']);
  const said = withSaid(worker.said, ['held'], said_at);
  if (hasEnded(worker))
    return {
      kind: 'applied',
      next: {...worker, said, held: false},
      what: `${name} is ${worker.phase}: it is made again when there is work for it`,
    };
  return {
    kind: 'applied',
    next: {...worker, said, recreate: true, held: false},
    what: `${name} will be made again`,
  };
}

/** `delete`: the slot's TPU goes, what it had in hand is another's, and it stays away until `recreate`. */
export function decideDelete(name: string, worker: Worker | undefined, said_at: string): Decision<Worker> {
  if (!worker) return noWorker(name);
  if (isOutdated(worker, 'held', said_at)) return outdatedBy(worker, ['held']);
  const said = withSaid(worker.said, ['held'], said_at);
  return {
    kind: 'applied',
    next: {...worker, said, held: true, recreate: !hasEnded(worker)},
    what: `${name} will be deleted and stay away; recreate brings it back`,
  };
}

function noWorker(name: string): {kind: 'rejected'; reason: string} {
  return {kind: 'rejected', reason: `there is no worker "${name}"`};
}

/** `retry`: a parked stream begins anew, with nothing held against it and what it has stored. */
export function decideRetry(stream: Stream, said_at: string, now: number): Decision<Stream> {
  const of = `${stream.run}/${stream.stream}`;
  if (stream.status !== 'failed')
    return {kind: 'rejected', reason: `stream ${of} is ${stream.status}, not failed`};
  if (stream.blocked_reason !== null)
    return {kind: 'rejected', reason: `stream ${of} waits for a rebuild: ${stream.blocked_reason}`};
  // Its worker could only find that out again, on a TPU that costs money.
  if (stream.size_bytes === 0)
    return {kind: 'rejected', reason: `stream ${of} is empty: drop it again with its records`};
  if (isOutdated(stream, 'status', said_at)) return outdatedBy(stream, ['status']);
  const next = {
    ...stream,
    said: withSaid(stream.said, ['status'], said_at),
    status: 'pending' as const,
    failures: 0,
    faults: 0,
    last_error: null,
    updated_at: iso(now),
  };
  return {kind: 'applied', next, what: `stream ${of} is tried again`};
}

const CANCELLED = 'cancelled by a message; retry revives it';

/** `cancel`: the stream is parked as it is; its worker is told at its next heartbeat. */
export function decideCancel(stream: Stream, said_at: string, now: number): Decision<Stream> {
  const of = `${stream.run}/${stream.stream}`;
  if (stream.status === 'completed') return {kind: 'rejected', reason: `stream ${of} is completed`};
  const next = {
    ...revokeLease(stream, now),
    said: withSaid(stream.said, ['status'], said_at),
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
  said_at: string,
  now: number,
): Decision<Run> {
  if (!run) return noRun(name);
  if (run.status === 'cancelled')
    return {kind: 'rejected', reason: `run "${name}" was stopped, and a stop is final`};
  const stale = staleFor(`run "${name}"`, run.version, if_version);
  if (stale) return stale;
  const {current, said, outdated} = sortSettings(run, settings, said_at);
  if (!current) return outdatedBy(run, outdated);
  const next = {...run, ...current, said, version: run.version + 1, updated_at: iso(now)};
  const what = `${name} has ${told(current)}, version ${next.version}${alsoOutdated(run, outdated)}`;
  return {kind: 'applied', next, what};
}

export function decideScale(
  pool: Pool,
  settings: PoolSettings,
  if_version: number | undefined,
  ceilings: Ceilings,
  said_at: string,
): Decision<Pool> {
  const stale = staleFor(`pool "${pool.pool}"`, pool.version, if_version);
  if (stale) return stale;
  const {current, said, outdated} = sortSettings(pool, settings, said_at);
  if (!current) return outdatedBy(pool, outdated);
  const tooLarge = whyPoolRefused({...pool, ...current}, ceilings);
  if (tooLarge) return {kind: 'rejected', reason: tooLarge};
  const next = {...pool, ...current, said, version: pool.version + 1};
  const what = `pool ${pool.pool} has ${told(current)}, version ${next.version}${alsoOutdated(pool, outdated)}`;
  return {kind: 'applied', next, what};
}

function isOutdated({said}: {said: Said}, field: string, said_at: string): boolean {
  return splitBySaid(said, [field], said_at).outdated.length > 0;
}

function outdatedBy({said}: {said: Said}, fields: readonly string[]): {kind: 'rejected'; reason: string} {
  return {kind: 'rejected', reason: outdatedText(said, fields)};
}

function alsoOutdated({said}: {said: Said}, fields: readonly string[]): string {
  return fields.length > 0 ? `; ${outdatedText(said, fields)}` : '';
}

/** `current`: the settings that no later message has set; undefined where a later one has set them all. */
function sortSettings<T extends object>({said}: {said: Said}, settings: T, said_at: string) {
  const all = given(settings);
  const {current, outdated} = splitBySaid(said, Object.keys(all), said_at);
  const kept = Object.fromEntries(Object.entries(all).filter(([key]) => current.includes(key)));
  return {
    current: current.length > 0 ? (kept as Partial<typeof all>) : undefined,
    outdated,
    said: withSaid(said, current, said_at),
  };
}

/** `resume` of a pool: its creates go on, here and in each of its zones, and unheard boots are counted anew. */
export function decideResumePool(pool: Pool, said_at: string): Decision<Pool> {
  const {stopped_at} = pool.boots;
  if (stopped_at !== null && said_at < stopped_at)
    return {
      kind: 'rejected',
      reason: `outdated: the creates of pool ${pool.pool} stopped later, at ${stopped_at}`,
    };
  const what = stopped_at === null ? 'was not stopped' : 'creates nodes again';
  return {kind: 'applied', next: {...pool, boots: NO_BOOTS}, what: `pool ${pool.pool} ${what}`};
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
