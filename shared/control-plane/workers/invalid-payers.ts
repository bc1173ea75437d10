/** Bills payers whose document is invalid: when an operator has mended the document, no cost is missing. */
import {checkDocument} from '../../contracts/document-limits.ts';
import {billOf, type Payers, type Share, sharesOf} from '../../domain/billing/bills.ts';
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
    const share = run === null ? {spent_usd: total} : (shares.get(run) ?? {});
    const billed = path === paths.spending() ? addMonths(data, addLives({}, ended)) : addSpent(data, share);
    const problem = billed === data ? 'its amount is no number' : documentProblem(path, billed);
    const usd = Object.values(share).reduce((sum, each) => sum + each, 0);
    if (problem) log('ERROR', `The cost of ${usd} USD is not added to ${path}: ${problem}`);
    else setInvalid(tx, path, billed);
  }
}

/** The field with the ended and living incarnations, by the field with the ended incarnations. */
const SUMS = {spent_usd: 'cost_usd', spent_download_usd: 'download_usd'} as const;

function addSpent(data: Document, share: Partial<Share>): Document {
  const billed = {...data};
  for (const [field, usd] of Object.entries(share) as [keyof Share, number][]) {
    const spent = plus(data[field], usd);
    if (spent === undefined) return data;
    billed[field] = spent;
    const sum = data[SUMS[field]];
    if (typeof sum === 'number') billed[SUMS[field]] = Math.max(sum, spent);
  }
  return billed;
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
