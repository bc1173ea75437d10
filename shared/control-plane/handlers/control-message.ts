import {createHash} from 'node:crypto';
import type {z} from 'zod';
import {Rejected} from '../../contracts/errors.ts';
import {rejectRepeatedKey} from '../../contracts/repeated-key.ts';
import {controlMessage, parseJson} from '../../contracts/schemas.ts';
import {
  type ControlMessage,
  cancelledAfter,
  type Decision,
  decideCancel,
  decideConfigure,
  decideDelete,
  decideRecreate,
  decideResumePool,
  decideRetry,
  decideRunAction,
  decideScale,
} from '../../domain/commands.ts';
import {NO_BOOTS} from '../../domain/fleet/breakers.ts';
import type {Zone} from '../../domain/fleet/placement.ts';
import {type Pool, slotsFor} from '../../domain/fleet/pool.ts';
import {paths, workerIdOf} from '../../domain/names.ts';
import {isOpen} from '../../domain/run/run.ts';
import {isUnfinished, type Stream} from '../../domain/stream/stream.ts';
import {iso} from '../../domain/time.ts';
import type {Transaction} from '../../ports.ts';
import {addLateShards} from '../runs/late-shards.ts';
import {openRuns} from '../runs/open-runs.ts';
import {rebuild} from '../runs/rebuild.ts';
import type {Deps} from '../state/deps.ts';
import {
  FAILED,
  poolRecords,
  runRecords,
  streamRecords,
  UNFINISHED,
  workerRecords,
  zoneRecords,
} from '../state/documents.ts';
import {tell, tellAlone} from '../state/event-log.ts';
import {controlRecords, MAX_TEXT} from '../state/history-documents.ts';
import {holderOf, takeWork, tellHolders} from '../state/lease-documents.ts';
import {keepPoolOrders, keepRunOrders} from '../state/orders.ts';
import {knownPool, readPool} from '../state/pools.ts';
import {registerRun, takeRun} from '../streams/register-stream.ts';
import {zoneOf} from '../workers/tpu-operations.ts';

const KEPT_DAYS = 90;

type Outcome = {outcome: 'applied' | 'rejected'; reason: string};
/** A message as it was published; `published_at` is undefined where the push does not say when. */
type Words = {id: string; text: string; published_at: string | undefined};
type About = {run?: string; stream?: string; worker?: string; pool?: string};

/** How many parked streams a message revives: for the rest it is to be sent again. */
const MOST_AT_ONCE = 200;
const MOST_TOLD = 20;

/**
 * Does what a message on topic `control` says, once: the record under its id is written with the change, so a redelivered
 * message finds it and changes nothing. What follows from the change is done again, because the function may have died
 * before it. A message that cannot be applied changes nothing and is recorded with the reason.
 */
export async function obeyControlMessage(deps: Deps, said: Words): Promise<void> {
  const {id: message_id, text} = said;
  const path = paths.control(documentId(message_id));
  try {
    const published_at = publishTimeOf(said);
    const message = parseJson(controlMessage satisfies z.ZodType<ControlMessage>, text, 'The message');
    rejectRepeatedKey(text, 'The message');
    const rebuilt = await makeKnown(deps, message);
    const {outcome, reason} = await deps.store.transaction(async tx => {
      const before = await tx.get(path);
      if (before) return {outcome: before.outcome as Outcome['outcome'], reason: 'done before'};
      return apply(deps, tx, path, {...said, published_at}, message, rebuilt);
    });
    deps.log(outcome === 'applied' ? 'INFO' : 'WARNING', reason, {message_id});
    if (isForAllWorkers(message)) await tellHolders(deps, message.run);
    if (message.action === 'stop') await addLateShards(deps, message.run);
    if (outcome === 'applied' && message.action === 'scale') await tellStranded(deps);
    if (outcome === 'applied') await keepOrders(deps, message);
    // Also for one that is rejected: it, or a delivery of it that died, may have made a run known again.
    await deps.ticker.on();
  } catch (error) {
    if (!(error instanceof Rejected)) throw error;
    const refusal: Outcome = {outcome: 'rejected', reason: error.message};
    await deps.store.transaction(async tx => {
      if (await tx.get(path)) return;
      record(tx, path, said, refusal, {}, deps.now());
    });
    deps.log('WARNING', refusal.reason, {message_id});
  }
}

/** Of other messages about a run, no worker or one hears in the transaction. */
function isForAllWorkers(message: ControlMessage): message is ControlMessage & {run: string} {
  return ['start', 'pause', 'resume', 'stop'].includes(message.action);
}

function publishTimeOf({published_at}: Words): string {
  if (published_at !== undefined) return published_at;
  throw new Rejected(
    'The message has no publishTime, so its place among others is unknown: publish it through Pub/Sub',
  );
}

/** A lost Store may not know what the message is about, and the bucket does. Answers what `rebuild` did. */
async function makeKnown(deps: Deps, message: ControlMessage): Promise<string> {
  switch (message.action) {
    case 'start':
      await takeRun(deps, message.run);
      return '';
    case 'rebuild':
      return rebuild(deps, message.run);
    case 'scale':
      await knownPool(deps);
      return '';
    case 'recreate':
    case 'delete':
      await knownPool(deps);
      return '';
    case 'resume':
      if (message.run === undefined) return '';
      if (!(await deps.store.get(paths.run(message.run)))) await registerRun(deps, message.run);
      return '';
    case 'pause':
    case 'stop':
    case 'configure':
    case 'retry':
    case 'cancel':
      if (!(await deps.store.get(paths.run(message.run)))) await registerRun(deps, message.run);
      return '';
    default:
      return message satisfies never;
  }
}

async function keepOrders(deps: Deps, message: ControlMessage): Promise<void> {
  if (message.action === 'rebuild') return;
  if ('run' in message && message.run !== undefined) await keepRunOrders(deps, message.run);
  else await keepPoolOrders(deps);
}

async function readNamedPool(deps: Deps, tx: Transaction, pool: string | undefined): Promise<Pool> {
  if (pool !== deps.config.pool.pool) throw new Rejected(`there is no pool "${pool}"`);
  return poolRecords.get(tx, deps.config.pool);
}

async function apply(
  deps: Deps,
  tx: Transaction,
  path: string,
  said: Words & {published_at: string},
  message: ControlMessage,
  rebuilt: string,
): Promise<Outcome> {
  const {published_at} = said;
  const now = deps.now();
  const conclude = <T>(
    decision: Decision<T>,
    set: (tx: Transaction, next: T) => void,
    about: About,
  ): Outcome => {
    if (decision.kind === 'applied') set(tx, decision.next);
    const reason = decision.kind === 'applied' ? decision.what : decision.reason;
    return record(tx, path, said, {outcome: decision.kind, reason}, about, now);
  };
  switch (message.action) {
    case 'start':
    case 'pause':
    case 'resume':
    case 'stop': {
      const {action, run} = message;
      if (run !== undefined) {
        const found = await runRecords.get(tx, run);
        return conclude(decideRunAction(action, run, found, published_at, now), runRecords.set, {run});
      }
      const pool = await readNamedPool(deps, tx, 'pool' in message ? message.pool : undefined);
      const zones = await Promise.all(pool.zones.map(zone => zoneOf(deps, tx, zone, now)));
      const resume = (tx: Transaction, next: Pool) => {
        poolRecords.set(tx, next);
        const isEarlier = ({boots}: Zone) => boots.stopped_at === null || boots.stopped_at <= published_at;
        for (const zone of zones.filter(isEarlier))
          if (zone.boots !== NO_BOOTS) zoneRecords.set(tx, {...zone, boots: NO_BOOTS, updated_at: iso(now)});
      };
      return conclude(decideResumePool(pool, published_at), resume, {pool: pool.pool});
    }
    case 'configure': {
      const {action: _, run, if_version, ...settings} = message;
      const found = await runRecords.get(tx, run);
      return conclude(decideConfigure(run, found, settings, if_version, published_at, now), runRecords.set, {
        run,
      });
    }
    case 'scale': {
      const {action: _, pool, if_version, ...settings} = message;
      const found = await readNamedPool(deps, tx, pool);
      return conclude(
        decideScale(found, settings, if_version, deps.config.ceilings, published_at),
        poolRecords.set,
        {pool},
      );
    }
    case 'retry':
    case 'cancel': {
      const {action, run} = message;
      const about = {run, ...(message.stream === undefined ? {} : {stream: message.stream})};
      const outcomes = await onStreams(deps, tx, message, stream =>
        action === 'retry' ? decideRetry(stream, published_at, now) : decideCancel(stream, published_at, now),
      );
      return record(tx, path, said, outcomes, about, now);
    }
    case 'recreate':
    case 'delete': {
      const {action, worker} = message;
      const decide = action === 'recreate' ? decideRecreate : decideDelete;
      return conclude(decide(worker, await workerRecords.get(tx, worker), published_at), workerRecords.set, {
        worker,
      });
    }
    case 'rebuild': {
      const about = message.run === undefined ? {} : {run: message.run};
      return record(tx, path, said, {outcome: 'applied', reason: rebuilt}, about, now);
    }
    default:
      return message satisfies never;
  }
}

/** One stream, or every parked one of the run; applied when any of them is. Opens the run again for them. */
async function onStreams(
  deps: Deps,
  tx: Transaction,
  {action, run, stream}: {action: 'retry' | 'cancel'; run: string; stream?: string | undefined},
  decide: (stream: Stream) => Decision<Stream>,
): Promise<Outcome> {
  const parent = await runRecords.get(tx, run);
  if (!parent) return {outcome: 'rejected', reason: `there is no run "${run}"`};
  if (parent.status === 'cancelled')
    return {outcome: 'rejected', reason: `run "${run}" was stopped, and a stop is final`};
  const ids = stream === undefined ? await parkedStreams(deps, run) : [stream];
  const found: Stream[] = [];
  for (const id of ids.slice(0, MOST_AT_ONCE)) {
    const each = await streamRecords.get(tx, run, id);
    if (each) found.push(each);
  }
  const holders = await Promise.all(found.map(stream => holderOf(deps, tx, stream)));
  const decisions = found.map(decide);
  const changed = decisions.filter(decision => decision.kind === 'applied');
  for (const {next} of changed) streamRecords.set(tx, next);
  for (const [index, decision] of decisions.entries())
    if (decision.kind === 'applied' && decision.next.lease === null) takeWork(tx, holders[index]);
  if (changed.length > 0) {
    const reopens = changed.some(({next}) => isUnfinished(next)) && !isOpen(parent);
    const streams = changed.map(({next}) => next.stream);
    const cancelled_streams = cancelledAfter(parent, action, streams);
    const status = reopens ? 'active' : parent.status;
    runRecords.set(tx, {...parent, status, cancelled_streams, updated_at: iso(deps.now())});
  }
  const reasons = decisions.map(decision => (decision.kind === 'applied' ? decision.what : decision.reason));
  const told = reasons.slice(0, MOST_TOLD);
  if (reasons.length > MOST_TOLD) told.push(`and ${reasons.length - MOST_TOLD} more`);
  if (ids.length > MOST_AT_ONCE) told.push('more are parked: send it again for them');
  const nothing =
    stream === undefined ? `run "${run}" has no failed stream` : `there is no stream ${run}/${stream}`;
  return {
    outcome: changed.length > 0 ? 'applied' : 'rejected',
    reason: told.length > 0 ? told.join('; ') : nothing,
  };
}

/** Found before the transaction reads them one by one: a transaction reads documents and never queries. */
async function parkedStreams(deps: Deps, run: string): Promise<string[]> {
  const parked = await deps.store.query(paths.streams(run), {
    where: [FAILED],
    limit: MOST_AT_ONCE + 1,
  });
  return parked.map(({id}) => id);
}

function record(
  tx: Transaction,
  path: string,
  {text, published_at}: Words,
  outcome: Outcome,
  about: About,
  now: number,
): Outcome {
  controlRecords.set(tx, path, {
    ...outcome,
    ...about,
    message: text.slice(0, MAX_TEXT).toWellFormed(),
    published_at: published_at ?? null,
    at: iso(now),
    expire_at: iso(now + KEPT_DAYS * 86_400_000),
  });
  const message_id = path.slice(path.indexOf('/') + 1);
  const what = `Control message ${outcome.outcome}: ${outcome.reason}`;
  tell(tx, {kind: 'control', ...about, message_id, text: what}, now);
  return outcome;
}

/** The pool has become another: of runs whose streams have a TPU of their own, some may have none any more. */
async function tellStranded(deps: Deps): Promise<void> {
  const pool = await readPool(deps);
  for (const run of await openRuns(deps)) {
    if (run.affinity === 'any' || run.pool !== pool.pool) continue;
    const unfinished = await deps.store.query(paths.streams(run.run), {where: [UNFINISHED]});
    const [first, ...more] = unfinished.filter(({id}) => slotsFor(pool, run, workerIdOf(id))?.length === 0);
    if (!first) continue;
    const text = `${more.length + 1} streams of run ${run.run} wait, the first is ${first.id}: the pool has no TPU with their number (affinity: fixed); scale the pool`;
    await tellAlone(deps, {kind: 'run', run: run.run, text});
  }
}

/** Pub/Sub's ids are digits; any other text becomes an id that Firestore takes. */
function documentId(message_id: string): string {
  return /^[A-Za-z0-9-]{1,128}$/.test(message_id)
    ? message_id
    : createHash('sha256').update(message_id).digest('hex');
}
