/** The estimate that `run start` prints before it spends, from the records that its checks have read. */

import type {Cloud} from '../../../client/cloud/cloud.ts';
import {dollarText, numberText} from '../../../client/text/format.ts';
import {say} from '../../../client/text/output.ts';
import {type Sampled, times} from '../../../client/views/assumptions.ts';
import type {RunSpecInput} from '../../../shared/contracts/spec/spec.ts';
import type {StreamFolder} from '../../streams/folder.ts';
import {reportOf} from './estimate.ts';
import type {Report} from './report.ts';
import {reportLines} from './report-lines.ts';

/** Bytes of a token of English text; other languages and code have fewer. */
const TOKEN_BYTES = 4;

/** Prints the estimate of a folder of streams beside the budget. `sampled`: undefined where no tokenizer was read; then says so. */
export async function estimateStart(
  cloud: Cloud,
  {
    run,
    input,
    folder,
    sampled,
  }: {run: string; input: RunSpecInput; folder: StreamFolder; sampled: Sampled | undefined},
  budget_usd: number | null,
): Promise<Report | null> {
  const stream_bytes = folder.streams.reduce((sum, {bytes}) => sum + bytes, 0);
  if (!sampled) {
    const tokens = numberText(Math.round(stream_bytes / TOKEN_BYTES));
    say(
      `By their bytes, the streams have about ${tokens} tokens: \`gleaner estimate ${folder.folder}\` counts them and shows the cost`,
    );
    return null;
  }
  const all = scaleSample(sampled, {streams: folder.streams.length, stream_bytes});
  const report = await reportOf(cloud, {what: `run ${run}`, input, sampled: all}, {});
  for (const line of startLines(report, budget_usd, Date.now())) say(line);
  return report;
}

/** The lines of an estimate that a person needs before a start. Of the changes that help, the best one. */
export function startLines(report: Report, budget_usd: number | null, now: number): string[] {
  const wanted = /^ {2}(warning|samples|tokens|bytes|speed|chips wait|time|dollars|earlier) /;
  const budget = budget_usd === null ? 'no budget' : `budget ${dollarText(budget_usd)}`;
  const all = reportLines({...report, helps: report.helps.slice(0, 1)}, now);
  const lines = all.filter((line, index) => wanted.test(line) || all[index - 1]?.startsWith('  chips wait'));
  return ['Estimate:', ...lines.map(line => (line.startsWith('  dollars') ? `${line}; ${budget}` : line))];
}

/** The counts of some streams for all of them, by bytes. */
export function scaleSample(
  sampled: Sampled,
  {streams, stream_bytes}: {streams: number; stream_bytes: number},
): Sampled {
  const factor = stream_bytes / sampled.stream_bytes;
  const {totals, computed_tokens, generated_tokens, operations} = sampled;
  const all = Object.entries(totals).map(([name, span]) => [name, times(span, factor)]);
  return {
    ...sampled,
    ...{streams, stream_bytes, exact: sampled.exact && streams === sampled.streams},
    totals: Object.fromEntries(all) as Sampled['totals'],
    ...{computed_tokens: computed_tokens * factor, generated_tokens: generated_tokens * factor},
    operations: operations * factor,
  };
}
