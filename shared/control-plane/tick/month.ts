/** Dollars of the month: in the database, and as a copy in the bucket, so that a lost database does not spend a month twice. */
import {z} from 'zod';
import {livingInMonth, monthOf} from '../../domain/billing/monthly-spending.ts';
import {monthObject, paths} from '../../domain/names.ts';
import type {DeploymentBudgets, Month} from '../../domain/tick/snapshot.ts';
import type {Deps} from '../deps.ts';
import {skipIfInvalid, spendingRecords} from '../documents/documents.ts';

/** The copy is written again when the dollars have grown by this share, or by this amount. */
const SHARE = 0.01;
const LEAST_USD = 0.01;

const copy = z.object({usd: z.coerce.number().min(0)});

/** Reads the spending of the month; a lost document begins with the copy. A deployment without a ceiling needs neither. */
export async function readMonth(deps: Deps): Promise<Month> {
  const {store, log, config, now} = deps;
  const name = monthOf(now());
  if (config.ceilings.max_budget_usd === null) return {name, spent_usd: 0};
  if ((await store.get(paths.spending())) === undefined) await restoreMonth(deps, name);
  const spending = await skipIfInvalid(log, () => spendingRecords.get(store));
  return {name, spent_usd: spending && (spending.months[name] ?? 0)};
}

/** Without a copy the document begins empty: a later copy must not count as lost. */
async function restoreMonth({store, objects, log}: Deps, name: string): Promise<void> {
  const object = await objects.head(monthObject(name));
  const usd = object && copy.parse(object.metadata).usd;
  await store.transaction(async tx => {
    if (await tx.get(paths.spending())) return;
    spendingRecords.set(tx, {months: usd === undefined ? {} : {[name]: usd}});
  });
  if (usd !== undefined)
    log('WARNING', `system/spending was lost: ${usd} USD of ${name} are restored from ${object?.name}`);
}

/** Copies the dollars of the month, those of living TPUs included. */
export async function copyMonth({objects, config, now}: Deps, budgets: DeploymentBudgets): Promise<void> {
  const {month, workers} = budgets;
  if (config.ceilings.max_budget_usd === null || month?.spent_usd === undefined) return;
  const usd = month.spent_usd + livingInMonth(month.name, workers.values(), now());
  if (usd === 0) return;
  const name = monthObject(month.name);
  const before = await objects.head(name);
  const known = copy.safeParse(before?.metadata).data?.usd ?? 0;
  if (usd - known < Math.max(LEAST_USD, SHARE * known)) return;
  const options = {content_type: 'application/json', metadata: {usd: String(usd)}};
  const bytes = Buffer.from(`${JSON.stringify({usd})}\n`);
  if (before) await objects.replace(name, before.generation, bytes, options);
  else await objects.create(name, bytes, options);
}
