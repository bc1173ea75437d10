/** Decisions about several slots from the documents that one transaction has read. The transaction writes the results. */
import {addBill} from '../billing/bills.ts';
import {pricedAs, priceOf} from '../billing/budget.ts';
import {hostsOfType} from '../fleet/accelerators.ts';
import type {Pool} from '../records/pool.ts';
import {type Worker, withoutWork} from '../records/worker.ts';
import type {Zone} from '../records/zone.ts';
import {iso} from '../time.ts';
import {allowanceOf, askOf, type PlacementLimits} from '../zone/placement.ts';
import {isAsking} from '../zone/zone-changes.ts';
import {apply} from './apply-decision.ts';
import {grantBoot, judgeSilence} from './shared-documents.ts';
import type {Context, SlotDocuments, SlotSettings, SlotWrites} from './slot-writes.ts';
import {decideWithout, type PlanInputs, type SlotDecision} from './slots.ts';

/** A slow function creates no node from a plan older than this, and deletes no unknown node by a list older than this. */
const PLAN_LASTS_MS = 60_000;

/** A plan creates no node once its first read is older than this: the budget may be spent by then, and `on-tick` ends after 540 s. */
const READS_LAST_MS = 300_000;

/** Decides which of the changes the shared documents allow, and derives their consequences. */
export function decideSlots(
  changes: readonly SlotDecision[],
  documents: SlotDocuments,
  inputs: PlanInputs,
  settings: SlotSettings,
  now: number,
): SlotWrites {
  const {zones, runs} = documents.shared;
  const shared = {...documents.shared, zones: new Map(zones), runs: new Map(runs)};
  const writes: SlotWrites = {
    ...{workers: [], attempts: new Map(), streams: new Map(), jobs: [], shared},
    ...{endedWorkers: [], events: [], stops: [], actions: [], heldWorkers: [], freedStreams: []},
    isOpened: false,
    lateSlots: [],
  };
  const context = {documents, inputs, settings, now};
  for (const change of changes) {
    const decision = allowed(writes, change, context);
    if (decision) apply(writes, decision, context);
  }
  freeMembers(writes, documents, now);
  addBill(shared, writes.endedWorkers, now);
  return writes;
}

/** Releases the other slices of each job whose attempt ended when one slice did. */
function freeMembers(writes: SlotWrites, {works}: SlotDocuments, now: number): void {
  const ended = new Set(writes.jobs.map(({before}) => before.job));
  const members = [...works.values()].flatMap(({job, members = []}) =>
    job && ended.has(job.job) ? members : [],
  );
  for (const member of members) {
    const place = writes.workers.findIndex(({name}) => name === member.name);
    const current = writes.workers[place];
    if (!current) writes.workers.push({...withoutWork(member), updated_at: iso(now)});
    else if (current.work !== null) writes.workers[place] = withoutWork(current);
  }
}

/**
 * The decision as silence guards, zones and budgets allow it; undefined if they allow no change. Checked again here, because since the plan
 * another tick may have created nodes in the zone, or spent the budget.
 */
function allowed(writes: SlotWrites, planned: SlotDecision, {inputs, settings, now}: Context) {
  const {limits, placement, bundle} = settings;
  const {before} = planned;
  const {shared} = writes;
  const verdict = judgeSilence(shared, planned, inputs, limits.silent_s, now);
  if (verdict === 'held') writes.heldWorkers.push(before);
  const judged =
    verdict === 'held' ? decideWithout('silence', planned, inputs, limits, now) : {...planned, verdict};
  const zone = shared.zones.get(before.zone);
  const isLate = now - inputs.planned_at_ms > PLAN_LASTS_MS || now - inputs.read_at_ms > READS_LAST_MS;
  const isAllowed = !zone || allowanceOf(zone, placement, bundle, now).most > 0;
  const isOpen = !zone || (!isLate && isAllowed);
  const isAgain = judged?.change === 'asked again' && !isOpen;
  if (isLate && isAllowed && isAsking(judged?.change)) writes.lateSlots.push(before.name);
  const decision = isAgain ? decideWithout('request', judged, inputs, limits, now) : judged;
  // The list may show an earlier incarnation of a slot for which the snapshot has no worker.
  const hasOldList = !isAsking(decision?.change) && now - inputs.nodes.at_ms > PLAN_LASTS_MS;
  if (!decision || (!decision.slot.seen && (isLate || hasOldList))) return undefined;
  if (decision.change !== 'asked') return decision;
  const counted = shared.creates ?? {creates: 0, late_pools: [], next_at: null};
  const isPaid = canPay(inputs.payers.get(before.name), shared.pool, inputs);
  if (!zone || !isOpen || !isPaid || counted.creates >= inputs.mostCreates) return undefined;
  const boot = grantBoot(shared, before.zone, settings, now);
  if (!boot) return undefined;
  shared.creates = {...counted, creates: counted.creates + 1};
  const fields = createFields(shared.pool ?? inputs.pool, zone, before, inputs, placement, now);
  return {...decision, worker: {...decision.worker, ...fields, ...boot}};
}

/** Tolerance for rounding in sums of dollars. */
const ROUNDING_USD = 1e-9;

/**
 * True if the budgets of the payer can also pay what other ticks have added to the bill since the plan, which may have read the bill before a
 * TPU ended, and the workers after.
 */
function canPay(
  payer: string | null | undefined,
  current: Pool | undefined,
  {tickBill, pool, spare}: PlanInputs,
): boolean {
  if (!payer) return false;
  const since_usd = (current ?? pool).spent_usd - pool.spent_usd - tickBill.usd;
  return since_usd - Math.max(0, spare.get(payer) ?? Number.POSITIVE_INFINITY) <= ROUNDING_USD;
}

/** Fields of a worker whose node is requested: the kind of request, the price and the payer. */
function createFields(
  pool: Pool,
  zone: Zone,
  {name}: Worker,
  {prices, payers}: PlanInputs,
  placement: PlacementLimits,
  now: number,
) {
  const usd_per_hour = priceOf(prices, pool, zone.zone);
  const ask = askOf(pool.provisioning, zone, placement, now);
  const host_count = hostsOfType(pool.accelerator);
  const charged_to = payers.get(name) ?? null;
  return {...ask, usd_per_hour, priced_as: pricedAs(pool), host_count, charged_to};
}
