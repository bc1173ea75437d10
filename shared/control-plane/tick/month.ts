/** Spending of the month: in the database, with a copy in the bucket, so that a lost or restored database cannot spend a month's budget twice. */
import {z} from 'zod';
import {livingInMonth, monthOf, type Spending} from '../../domain/billing/monthly-spending.ts';
import {instant, orNull} from '../../domain/fields.ts';
import {monthObject, paths} from '../../domain/names.ts';
import type {DeploymentBudgets, Month} from '../../domain/tick/snapshot.ts';
import {iso} from '../../domain/time.ts';
import type {ObjectInfo, Objects, Store, Transaction} from '../../ports/ports.ts';
import type {Deps} from '../deps.ts';
import {skipIfInvalid, spendingRecords} from '../documents/documents.ts';

/** The copy is rewritten when the spending has grown by this share, or by this amount. */
const SHARE = 0.01;
const LEAST_USD = 0.01;

/** `ended_usd`: spending in the document at that time, without living TPUs. It never decreases. */
const copy = z.object({
  usd: z.coerce.number().min(0),
  ended_usd: z.coerce.number().min(0),
  at: orNull(instant),
});

/** Reads the spending of the month. Without a ceiling, neither document nor copy is read. */
export async function readMonth(deps: Deps): Promise<Month> {
  const {objects, log, config, now} = deps;
  const name = monthOf(now());
  if (config.ceilings.max_budget_usd === null) return {name, copied_at: null, spent_usd: 0};
  const copied = copyOf(await objects.head(monthObject(name)));
  const spending = await skipIfInvalid(log, () => readSpending(deps, name, copied));
  if (!spending) return {name, copied_at: copied.at, spent_usd: undefined, copied_usd: copied.usd};
  return {name, copied_at: spending.copied_at, spent_usd: spending.months[name] ?? 0};
}

type Copy = z.infer<typeof copy>;

function copyOf(object: {metadata: Record<string, string>} | undefined): Copy {
  return copy.safeParse(object?.metadata).data ?? {usd: 0, ended_usd: 0, at: null};
}

/**
 * Reads the document. If it was lost, or comes from a backup and so has less spending of ended TPUs, it starts from the copy. Without a copy
 * a lost document starts empty, and is written so that a later copy does not count as lost.
 */
async function readSpending({store, log}: Deps, name: string, {usd, ended_usd, at}: Copy): Promise<Spending> {
  const readFrom = async (from: Store | Transaction) => {
    const spending = await spendingRecords.get(from);
    const isThere = (await from.get(paths.spending())) !== undefined;
    return {spending, isWhole: isThere && (spending.months[name] ?? 0) >= ended_usd};
  };
  const read = await readFrom(store);
  if (read.isWhole) return read.spending;
  const restored = await store.transaction(async tx => {
    const {spending, isWhole} = await readFrom(tx);
    if (isWhole) return spending;
    const {months} = spending;
    const most = Math.max(months[name] ?? 0, usd);
    const next = {...spending, copied_at: at, months: most === 0 ? months : {...months, [name]: most}};
    spendingRecords.set(tx, next);
    return next;
  });
  if (usd > 0)
    log(
      'WARNING',
      `system/spending was lost or is from a backup: ${usd} USD of ${name} are restored from ${monthObject(name)}`,
    );
  return restored;
}

/** Copies the spending of the month, including that of living TPUs. */
export async function copyMonth({objects, config, now}: Deps, budgets: DeploymentBudgets): Promise<void> {
  const {month, workers} = budgets;
  if (config.ceilings.max_budget_usd === null || month?.spent_usd === undefined) return;
  const at_ms = now();
  const usd = month.spent_usd + livingInMonth(month, workers.values(), at_ms);
  if (usd === 0) return;
  const name = monthObject(month.name);
  const before = await objects.head(name);
  const known = copyOf(before);
  const ended_usd = month.spent_usd;
  const grown_usd = Math.max(usd - known.usd, ended_usd - known.ended_usd);
  if (grown_usd < Math.max(LEAST_USD, SHARE * known.usd)) return;
  await writeCopy(objects, name, before, {usd, ended_usd, at: iso(at_ms)});
}

/** Corrects the copy to a person's figure. The next ticks add the spending of living TPUs. */
export async function correctCopy({objects, now}: Deps, month: string, usd: number): Promise<void> {
  const name = monthObject(month);
  const before = await objects.head(name);
  if (before) await writeCopy(objects, name, before, {usd, ended_usd: usd, at: iso(now())});
}

async function writeCopy(objects: Objects, name: string, before: ObjectInfo | undefined, facts: Copy) {
  const metadata = {usd: String(facts.usd), ended_usd: String(facts.ended_usd), at: String(facts.at)};
  const options = {content_type: 'application/json', metadata};
  const bytes = Buffer.from(`${JSON.stringify(metadata)}\n`);
  if (before) await objects.replace(name, before.generation, bytes, options);
  else await objects.create(name, bytes, options);
}
