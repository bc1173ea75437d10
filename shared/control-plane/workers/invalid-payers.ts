/** Bills payers whose document is invalid: when an operator has mended the document, no cost is missing. */
import {checkDocument} from '../../contracts/document-limits.ts';
import {billOf, type Payers, sharesOf} from '../../domain/billing/bills.ts';
import {addLives, type Months} from '../../domain/billing/monthly-spending.ts';
import {paths} from '../../domain/names.ts';
import type {Worker} from '../../domain/worker/worker.ts';
import type {Document, Transaction, Value} from '../../ports.ts';
import {setInvalid} from '../documents/document-kind.ts';
import type {Log} from '../log.ts';

/** `run`: null for the pool, and for the months of the deployment. */
export type InvalidPayer = {path: string; data: Document; run: string | null};

/** Reads the payers of these incarnations that have a document and are not among the valid payers. */
export async function readInvalidPayers(
  tx: Transaction,
  {runs, pool, spending}: Payers,
  ended: readonly Worker[],
  poolName: string,
): Promise<InvalidPayer[]> {
  if (billOf(ended) === 0) return [];
  const payers = [
    ...[...sharesOf(ended).keys()].flatMap(run => (runs.has(run) ? [] : {path: paths.run(run), run})),
    ...(pool ? [] : [{path: paths.pool(poolName), run: null}]),
    ...(spending ? [] : [{path: paths.spending(), run: null}]),
  ];
  const stored = await Promise.all(
    payers.map(async payer => {
      const data = await tx.get(payer.path);
      return data ? [{...payer, data}] : [];
    }),
  );
  return stored.flat();
}

/** Adds the shares of the payers to the numbers in their documents. */
export function billInvalidPayers(
  log: Log,
  tx: Transaction,
  payers: readonly InvalidPayer[],
  ended: readonly Worker[],
): void {
  const total = billOf(ended);
  if (total === 0) return;
  const shares = sharesOf(ended);
  for (const {path, data, run} of payers) {
    const usd = run === null ? total : (shares.get(run) ?? 0);
    const billed = path === paths.spending() ? addMonths(data, addLives({}, ended)) : addSpent(data, usd);
    const problem = billed === data ? 'its amount is no number' : documentProblem(path, billed);
    if (problem) log('ERROR', `The cost of ${usd} USD is not added to ${path}: ${problem}`);
    else setInvalid(tx, path, billed);
  }
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

/** The reason why the store refuses the document, such as an operator's text in place of an instant. */
function documentProblem(path: string, data: Document): string | undefined {
  try {
    checkDocument(path, data);
    return undefined;
  } catch (error) {
    return (error as Error).message;
  }
}
