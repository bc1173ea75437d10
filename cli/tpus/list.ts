import {withCloud} from '../../client/cloud/cloud.ts';
import type {CloudOptions} from '../../client/connection/connect.ts';
import {counted, durationText, type Style, table} from '../../client/text/format.ts';
import {printJson} from '../../client/text/output.ts';
import {printLines, type StyledLine} from '../../client/text/styled-lines.ts';
import {priceOfHour, readTpus, type TpuRow, totalsOf, totalsText, whyNone} from '../../client/views/tpus.ts';
import type {Store} from '../../shared/ports/ports.ts';

type Options = CloudOptions & {pool?: string; zone?: string; all?: boolean};

/** Lists the TPUs of the deployment, with what they cost together. */
export async function list(options: Options): Promise<void> {
  await withCloud(options, async cloud => {
    const now = Date.now();
    const found = await readTpus(cloud, options, now);
    const shown = options.all ? found : found.filter(({phase}) => phase !== 'gone');
    const totals = totalsOf(found);
    if (options.json) return printJson<'tpus list'>({tpus: shown, totals});
    const gone = found.length - shown.length;
    const hidden = gone === 0 ? [] : [{text: `${counted(gone, 'TPU')} gone: --all shows them`}];
    if (shown.length === 0) return printLines([...(await noneLines(cloud.store, options.pool)), ...hidden]);
    printLines([...tpuTable(shown, now), {text: totalsText(totals), style: 'bold'}, ...hidden]);
  });
}

async function noneLines(store: Store, pool: string | undefined): Promise<StyledLine[]> {
  const reasons = await whyNone(store, pool);
  return reasons.map(({text, waits}) => (waits ? {text, style: 'yellow'} : {text}));
}

/** The name and the status come first, because a narrow terminal cuts the right side. */
const TITLES = ['TPU', 'STATUS', 'WORKS ON', 'SINCE', '$/H', 'PHASE', 'ZONE', 'ACCELERATOR', 'REASON'];

export function tpuTable(rows: readonly TpuRow[], now: number): StyledLine[] {
  const cells = rows.map(row => [
    row.tpu,
    row.status,
    row.work ?? '-',
    ageText(row.since_at, now),
    priceText(row),
    row.phase,
    row.zone,
    row.accelerator ?? '-',
    row.reason ?? row.last_error ?? '',
  ]);
  const [head = '', ...lines] = table(TITLES, cells, ['SINCE', '$/H']);
  return [
    {text: head, style: 'bold', is_row: true},
    ...lines.map((text, index) => ({text, style: rows[index] && styleOf(rows[index]), is_row: true})),
  ];
}

/** A TPU without a node costs nothing, and the sum below leaves it out. */
function priceText({is_billed, usd_per_hour}: TpuRow): string {
  if (!is_billed) return '-';
  return usd_per_hour === null ? '?' : priceOfHour(usd_per_hour);
}

/** `5.2 min`; nothing for a slot that never had a TPU. */
export function ageText(at: string, now: number): string {
  const ms = Date.parse(at);
  return ms === 0 ? '-' : durationText(Math.max(0, now - ms) / 1000);
}

function styleOf({status, phase, work}: TpuRow): Style | undefined {
  if (status === 'PREEMPTED' || status === 'MISSING') return 'red';
  if (phase === 'gone') return 'dim';
  return phase === 'working' && work !== null ? 'green' : undefined;
}
