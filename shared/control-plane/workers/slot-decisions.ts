/** Decisions about slots inside a transaction, with the documents that each decision touches. */
import {accrue} from '../../domain/billing/cost.ts';
import type {Job} from '../../domain/job/job.ts';
import {paths} from '../../domain/names.ts';
import type {Stream} from '../../domain/stream/stream.ts';
import {decideSlot, isStillPlanned, type Slot, type Terms} from '../../domain/tick/slots.ts';
import type {WorkerDecision} from '../../domain/worker/transitions.ts';
import {newWorker, type Worker} from '../../domain/worker/worker.ts';
import type {Verdict} from '../../domain/zone/silence-brake.ts';
import {type Change, changeOf, isEnding} from '../../domain/zone/zone-changes.ts';
import type {Transaction} from '../../ports.ts';
import type {Deps} from '../deps.ts';
import {skipIfInvalid, workerRecords} from '../documents/documents.ts';
import {jobOf} from '../documents/job-documents.ts';
import {suspectedBy, workOf} from '../documents/lease-documents.ts';
import type {Log} from '../log.ts';

/**
 * Decision about a slot, in the transaction that writes it. `stream`, `job`: leased to an incarnation that ends with this decision. `suspected`:
 * the stream that the worker lost when it fell silent.
 */
export type Turn = WorkerDecision & {
  slot: Slot;
  before: Worker;
  change: Change | undefined;
  stream: Stream | undefined;
  job: Job | undefined;
  suspected: Stream | undefined;
  verdict?: Verdict | undefined;
};

/**
 * Reads the worker of a slot. Undefined: its document was lost since the plan, so its node is an orphan from the next tick on. An invalid
 * document of a slot without a node is replaced, so the slot gets work again. The new document keeps the incarnation.
 */
export async function readSlot(
  log: Log,
  tx: Transaction,
  slot: Slot,
  now: number,
): Promise<{slot: Slot; worker: Worker} | undefined> {
  const {name, place, seen} = slot;
  const read = () => workerRecords.get(tx, name);
  const found = seen ? await read() : await skipIfInvalid(log, read);
  if (found) return {slot, worker: accrue(found, now)};
  if (seen) return undefined;
  const {incarnation} = (await tx.get(paths.worker(name))) ?? {};
  const worker = newWorker(name, place, now);
  const isNumber = Number.isSafeInteger(incarnation) && Number(incarnation) > 0;
  return {slot, worker: isNumber ? {...worker, incarnation: Number(incarnation)} : worker};
}

/** Decides about the slots to which the plan still applies. Slots without a change get no decision. */
export async function decideTurns(
  deps: Deps,
  tx: Transaction,
  current: readonly {slot: Slot; worker: Worker}[],
  plan: Terms,
  now: number,
): Promise<Turn[]> {
  const changed = current
    .filter(({slot, worker}) => isStillPlanned(slot, worker, plan))
    .map(({slot, worker: before}) => ({
      slot,
      before,
      ...decideSlot(slot, before, plan, deps.config.limits, now, 'ends'),
    }))
    .filter(({before, worker}) => worker !== before);
  return Promise.all(
    changed.map(async turn => {
      const isOver = isEnding(turn.before, turn.worker);
      return {
        ...turn,
        change: changeOf(turn.before, turn),
        stream: isOver ? await workOf(deps.log, tx, turn.before) : undefined,
        job: isOver ? await jobOf(deps, tx, turn.before) : undefined,
        suspected: turn.death?.kind === 'silent' ? await suspectedBy(deps.log, tx, turn.before) : undefined,
      };
    }),
  );
}

/**
 * Decides again, without the end of a silent worker that a brake holds, or without a repeated create that its zone does not allow. The
 * worker may end for another cause, its node may have changed, or another run may pay for it. Undefined: no change.
 */
export function decideWithout(
  what: 'silence' | 'request',
  {config}: Deps,
  turn: Turn,
  plan: Terms,
  now: number,
): Turn | undefined {
  const {slot, before} = turn;
  const ask_again_s = what === 'request' ? Number.POSITIVE_INFINITY : config.limits.ask_again_s;
  const silence = what === 'silence' ? 'held' : 'ends';
  const decision = decideSlot(slot, before, plan, {...config.limits, ask_again_s}, now, silence);
  if (decision.worker === before) return undefined;
  const isOver = isEnding(before, decision.worker);
  const freed = {stream: isOver ? turn.stream : undefined, job: isOver ? turn.job : undefined};
  return {slot, before, ...decision, change: changeOf(before, decision), ...freed, suspected: undefined};
}
