/** Checks that each second of a TPU is billed once, at its price, to the work that has the TPU then. */
import {downloadsOf, JOBS} from '../../../shared/domain/billing/cost.ts';
import {parseJobWork, parseWork} from '../../../shared/domain/names.ts';
import type {Costs, Worker} from '../../../shared/domain/records/worker.ts';
import type {Document} from '../../../shared/ports/ports.ts';
import {Check} from './violations.ts';

const HOUR_MS = 3_600_000;
/** Instants of documents are whole milliseconds. */
const ROUNDING_H = 0.002 / 3600;
const TOLERANCE_USD = 1e-9;
/** The payer of a TPU that no work has yet. */
const IDLE = '_idle';

export class Ledger extends Check {
  /** Each commit bills the time since the last bill, and nothing else. A new price is checked by the bill of the whole life. */
  onWorker(name: string, was: Document, is: Document): void {
    const [before, after] = [was as unknown as Worker, is as unknown as Worker];
    const {ready_at, usd_per_hour} = after;
    if (is.provider_state === 'READY' && ready_at === null && after.phase !== 'gone')
      this.breach(`${name} is READY, and its time costs nothing`);
    const isSameLife = before.incarnation === after.incarnation && before.usd_per_hour === usd_per_hour;
    if (!isSameLife || ready_at === null || usd_per_hour === null || before.costs === after.costs) return;
    // A node that is seen again after its end has a bill of its own for this time.
    const isSeenAgain = before.phase === 'gone' && after.phase !== 'gone';
    const {costs, costs_at}: Pick<Worker, 'costs' | 'costs_at'> = isSeenAgain
      ? {costs: {}, costs_at: null}
      : before;
    const [from, to] = [costs_at ?? ready_at, after.costs_at ?? ready_at];
    const owed = ((Date.parse(to) - Date.parse(from)) / HOUR_MS) * usd_per_hour;
    const paid = timeUsd(after.costs) - timeUsd(costs);
    if (!(Math.abs(paid - owed) < ROUNDING_H * usd_per_hour))
      this.breach(`${name} owes $${owed} for its time from ${from} to ${to}, and is billed for $${paid}`);
    const payers = [payerOf(before), payerOf(after)];
    for (const [key, usd] of Object.entries(after.costs))
      if (!payers.includes(key) && isTime(key) && usd > (costs[key] ?? 0) + TOLERANCE_USD)
        this.breach(`${name} works for ${payers}, and ${key} pays $${usd} after $${costs[key]}`);
  }
}

function payerOf({work, charged_to}: Worker): string {
  if (parseJobWork(work) !== undefined) return JOBS;
  return parseWork(work)?.run ?? charged_to ?? IDLE;
}

function isTime(key: string): boolean {
  return !key.startsWith(downloadsOf(''));
}

/** Dollars of these costs for the time of the TPU, without downloads. */
export function timeUsd(costs: Costs): number {
  return Object.entries(costs).reduce((sum, [key, usd]) => sum + (isTime(key) ? usd : 0), 0);
}
