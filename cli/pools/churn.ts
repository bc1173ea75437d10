/** `gleaner churn`: show how requests and TPUs fared in the last week, by zone and accelerator. */

import {withCloud} from '../../client/cloud/cloud.ts';
import type {CloudOptions} from '../../client/connection/connect.ts';
import type {Answers} from '../../client/json/index.ts';
import {type Column, dollarText, durationText, numberText} from '../../client/text/format.ts';
import {print, say, table} from '../../client/text/output.ts';
import {usdPerMillionTokens} from '../../client/views/rates.ts';
import {zoneRecords} from '../../shared/control-plane/documents/documents.ts';
import {addCounts, CLEAR, type Counts, lastWeek} from '../../shared/domain/records/churn.ts';
import type {Store} from '../../shared/ports/ports.ts';

type ZoneChurn = Answers['churn'][number];

/** Prints the churn of each zone that was asked for a node in the last week. */
export async function churn(options: CloudOptions): Promise<void> {
  await withCloud(options, async ({store}) => {
    const found = await readChurn(store, Date.now());
    const none = ['no churn yet: it comes from the requests and the TPUs of the last week'];
    print<'churn'>(options.json, found, found.length > 0 ? table(COLUMNS, found) : none);
  });
}

export async function readChurn(store: Store, now: number): Promise<ZoneChurn[]> {
  const zones = zoneRecords.parseAll(await store.query('zones'), ({message}) => say(message));
  const days = zones.flatMap(({zone, churn}) => lastWeek(churn, now).map(day => ({zone, ...day})));
  const groups = Map.groupBy(days, ({zone, accelerator}) => `${zone} ${accelerator}`);
  return [...groups].sort().map(([key, group]) => {
    const [zone = '', accelerator = ''] = key.split(' ');
    return {zone, accelerator, ...summaryOf(group.reduce<Counts>(addCounts, CLEAR))};
  });
}

function summaryOf({given, wait_s, lives, life_s, tokens, usd, ...counts}: Counts) {
  return {
    ...{given, lives, tokens, usd, ...counts},
    mean_wait_s: given > 0 ? wait_s / given : null,
    mean_life_s: lives > 0 ? life_s / lives : null,
    usd_per_million_tokens: usdPerMillionTokens({cost_usd: usd, total_tokens: tokens}),
  };
}

const seconds = (value: number | null) => (value === null ? '-' : durationText(value));
const dollars = (value: number | null) => (value === null ? '-' : dollarText(value));

const COLUMNS: Column<ZoneChurn>[] = [
  {title: 'Zone', cell: ({zone}) => zone},
  {title: 'Accelerator', cell: ({accelerator}) => accelerator},
  {title: 'Tries', cell: ({tries}) => numberText(tries), right: true},
  {title: 'Refused', cell: ({refusals}) => numberText(refusals), right: true},
  {title: 'Wait', cell: ({mean_wait_s}) => seconds(mean_wait_s), right: true},
  {title: 'Lives', cell: ({lives}) => numberText(lives), right: true},
  {title: 'Mean life', cell: ({mean_life_s}) => seconds(mean_life_s), right: true},
  {title: 'Preempted', cell: ({preemptions}) => numberText(preemptions), right: true},
  {title: '$/M tokens', cell: each => dollars(each.usd_per_million_tokens), right: true},
];

/** `41 requests of the last week, 30 refused; 11 TPUs came after 2.1 min, 4 of 10 were preempted after 3.2 h`. */
export function churnText({
  tries,
  refusals,
  given,
  mean_wait_s,
  lives,
  preemptions,
  mean_life_s,
}: ZoneChurn): string {
  const came =
    mean_wait_s === null
      ? 'no TPU came'
      : `${numberText(given)} TPUs came after ${durationText(mean_wait_s)}`;
  const lived =
    mean_life_s === null
      ? ''
      : `, ${preemptions} of ${numberText(lives)} were preempted, and lived for ${durationText(mean_life_s)}`;
  return `${numberText(tries)} requests of the last week, ${numberText(refusals)} refused; ${came}${lived}`;
}
