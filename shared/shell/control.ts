import {createHash} from 'node:crypto';
import type {z} from 'zod';
import {type ControlMessage, decideRecreate, decideRunAction} from '../core/control.ts';
import {revokeLease} from '../core/lease.ts';
import {paths} from '../core/names.ts';
import {iso} from '../core/time.ts';
import {Rejected} from '../errors.ts';
import type {Document, Transaction} from '../ports.ts';
import {controlMessage, parseJson} from '../schemas.ts';
import type {Deps} from './deps.ts';
import {takeRun} from './intake.ts';
import {runRecords, streamRecords, workerRecords} from './records.ts';
import {tell} from './timeline.ts';

const KEPT_DAYS = 90;

type Outcome = {outcome: 'applied' | 'rejected'; reason: string};

/**
 * Does what a message on topic `control` says, once: the record under its id is written with the change, so a redelivered
 * message finds it and changes nothing. What follows from the change is done again, because the function may have died
 * before it. A message that cannot be applied changes nothing and is recorded with the reason.
 */
export async function obeyControlMessage(deps: Deps, message_id: string, text: string): Promise<void> {
  const path = paths.control(documentId(message_id));
  try {
    const message = parseJson(controlMessage satisfies z.ZodType<ControlMessage>, text, 'The message');
    if (message.action === 'start') await takeRun(deps, message.run);
    const {outcome, reason} = await deps.store.transaction(async tx => {
      if (await tx.get(path)) return {outcome: 'applied', reason: 'done before'};
      return apply(tx, path, text, message, deps.now());
    });
    deps.log(outcome === 'applied' ? 'INFO' : 'WARNING', reason, {message_id});
    if (message.action === 'stop') await revokeLeases(deps, message.run);
    if (outcome === 'applied') await deps.ticker.on();
  } catch (error) {
    if (!(error instanceof Rejected)) throw error;
    const refusal: Outcome = {outcome: 'rejected', reason: error.message};
    await deps.store.transaction(async tx => {
      if (await tx.get(path)) return;
      record(tx, path, text, refusal, {}, deps.now());
    });
    deps.log('WARNING', refusal.reason, {message_id});
  }
}

async function apply(
  tx: Transaction,
  path: string,
  text: string,
  message: ControlMessage,
  now: number,
): Promise<Outcome> {
  if (message.action === 'recreate') {
    const order = decideRecreate(message.worker, await workerRecords.get(tx, message.worker));
    if (order.kind === 'applied') workerRecords.set(tx, order.worker);
    return record(tx, path, text, outcomeOf(order), {worker: message.worker}, now);
  }
  const decision = decideRunAction(message.action, message.run, await runRecords.get(tx, message.run), now);
  if (decision.kind === 'applied') runRecords.set(tx, decision.run);
  return record(tx, path, text, outcomeOf(decision), {run: message.run}, now);
}

function outcomeOf(decision: {kind: 'applied'; what: string} | {kind: 'rejected'; reason: string}): Outcome {
  return decision.kind === 'applied'
    ? {outcome: 'applied', reason: decision.what}
    : {outcome: 'rejected', reason: decision.reason};
}

function record(
  tx: Transaction,
  path: string,
  text: string,
  outcome: Outcome,
  about: {run?: string; worker?: string},
  now: number,
): Outcome {
  const document: Document = {
    ...outcome,
    ...about,
    message: text.slice(0, 4000).toWellFormed(),
    at: iso(now),
    expire_at: iso(now + KEPT_DAYS * 86_400_000),
  };
  tx.set(path, document);
  tell(tx, {kind: 'control', ...about, text: `Control message ${outcome.outcome}: ${outcome.reason}`}, now);
  return outcome;
}

/** A stopped run's workers learn it at their next heartbeat; its streams show at once that nobody has them. */
async function revokeLeases(deps: Deps, run: string): Promise<void> {
  if ((await runRecords.get(deps.store, run))?.status !== 'cancelled') return;
  const leased = await deps.store.query(paths.streams(run), {
    where: [{field: 'status', op: '==', value: 'in_progress'}],
  });
  for (const {id} of leased)
    await deps.store.transaction(async tx => {
      const stream = await streamRecords.get(tx, run, id);
      if (stream) streamRecords.set(tx, revokeLease(stream, deps.now()));
    });
}

/** Pub/Sub's ids are digits; any other text becomes an id that Firestore takes. */
function documentId(message_id: string): string {
  return /^[A-Za-z0-9-]{1,128}$/.test(message_id)
    ? message_id
    : createHash('sha256').update(message_id).digest('hex');
}
