/** Bills of payers whose document is invalid: after an operator has mended the document, it lacks no cost. */
import {checkDocument} from '../../contracts/document-limits.ts';
import {runsAmong, totalOf} from '../../domain/billing/cost.ts';
import {addLives, type Months} from '../../domain/billing/monthly-spending.ts';
import {paths} from '../../domain/names.ts';
import type {Document, Transaction, Value} from '../../ports.ts';
import type {Log} from '../log.ts';
import type {Payers} from './bills.ts';

/** The document with its share of the bill. */
export type BilledDocument = {path: string; data: Document};

type Account = {path: string; usd: number; add: (data: Document) => Document};

/** Reads the payers that have a document and are not among the valid ones, and adds their shares to the numbers in these documents. */
export async function billInvalidPayers(
  log: Log,
  tx: Transaction,
  {runs, pool, spending, bill}: Payers,
  poolName: string,
): Promise<BilledDocument[]> {
  const lives = bill.map(({worker}) => worker);
  const total = lives.reduce((sum, {costs}) => sum + totalOf(costs), 0);
  if (total === 0) return [];
  const shares = new Map<string, number>();
  for (const {costs} of lives)
    for (const run of runsAmong(costs)) shares.set(run, (shares.get(run) ?? 0) + (costs[run] ?? 0));
  const spent = (path: string, usd: number) => ({path, usd, add: (data: Document) => addSpent(data, usd)});
  const months = addLives({}, lives);
  const accounts: Account[] = [
    ...[...shares].flatMap(([run, usd]) => (runs.has(run) ? [] : spent(paths.run(run), usd))),
    ...(pool ? [] : [spent(paths.pool(poolName), total)]),
    ...(spending
      ? []
      : [{path: paths.spending(), usd: total, add: (data: Document) => addMonths(data, months)}]),
  ];
  const billed = await Promise.all(
    accounts.map(async ({path, usd, add}) => {
      const found = await tx.get(path);
      const data = found && add(found);
      const cause = data && (data === found ? 'its amount is no number' : whyRefused(path, data));
      if (cause) log('ERROR', `The cost of ${usd} USD is not added to ${path}: ${cause}`);
      return data && !cause ? [{path, data}] : [];
    }),
  );
  return billed.flat();
}

function addSpent(data: Document, usd: number): Document {
  const spent_usd = plus(data.spent_usd, usd);
  if (spent_usd === undefined) return data;
  const {cost_usd} = data;
  const isSummed = typeof cost_usd === 'number';
  return {...data, spent_usd, ...(isSummed ? {cost_usd: Math.max(cost_usd, spent_usd)} : {})};
}

function addMonths(data: Document, added: Months): Document {
  const {months} = data;
  if (typeof months !== 'object' || months === null || Array.isArray(months)) return data;
  const sums = {...months};
  for (const [month, usd] of Object.entries(added)) {
    const sum = plus(sums[month], usd);
    if (sum === undefined) return data;
    sums[month] = sum;
  }
  return {...data, months: sums};
}

/** Undefined for a value that is no number. */
function plus(value: Value | undefined, usd: number): number | undefined {
  if (value === undefined) return usd;
  return typeof value === 'number' ? value + usd : undefined;
}

/** Says why the store would refuse the document: an operator's text in place of an instant, for example. */
function whyRefused(path: string, data: Document): string | undefined {
  try {
    checkDocument(path, data);
    return undefined;
  } catch (error) {
    return (error as Error).message;
  }
}
