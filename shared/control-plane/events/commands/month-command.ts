/** Corrects the spending of a month after wrong reports; it counts towards the ceiling of the deployment. */
import {z} from 'zod';
import {spendingRecords} from '../../documents/documents.ts';
import {correctCopy} from '../../tick/month.ts';
import {command} from './command.ts';

const month = z
  .string()
  .regex(/^\d{4}-(0[1-9]|1[0-2])$/, 'expected a month such as 2026-11')
  .describe('A UTC month, such as `2026-11`.');

const usd = z.number().min(0).max(1e9).describe('Dollars of that month.');

export const correct = command({
  schema: z.strictObject({action: z.literal('correct'), month, usd}),
  // The copy is written first, because a document with less spending than its copy counts as restored from a backup.
  prepare: (deps, {month, usd}) => correctCopy(deps, month, usd),
  decide: async ({tx}, {month, usd}) => {
    const spending = await spendingRecords.get(tx);
    const before = spending.months[month] ?? 0;
    spendingRecords.set(tx, {...spending, months: {...spending.months, [month]: usd}});
    const reason = `the dollars of ended TPUs and of network in ${month} are ${usd}, and were ${before}`;
    return {outcome: 'applied', reason, about: {}};
  },
});
