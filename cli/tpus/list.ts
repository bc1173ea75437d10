import {withCloud} from '../../client/cloud/cloud.ts';
import type {CloudOptions} from '../../client/connection/connect.ts';
import {type Column, counted, durationText, type Style} from '../../client/text/format.ts';
import {printJson} from '../../client/text/output.ts';
import {printLines, type StyledLine, styledTable} from '../../client/text/styled-lines.ts';
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
export function tpuTable(rows: readonly TpuRow[], now: number): StyledLine[] {
  const columns: Column<TpuRow>[] = [
    {title: 'TPU', cell: ({tpu}) => tpu},
    {title: 'STATUS', cell: ({status}) => status},
    {title: 'WORKS ON', cell: ({work}) => work ?? '-'},
    {title: 'SINCE', cell: ({since_at}) => ageText(since_at, now), right: true},
    {title: '$/H', cell: priceText, right: true},
    {title: 'PHASE', cell: ({phase}) => phase},
    {title: 'ZONE', cell: ({zone}) => zone},
    {title: 'ACCELERATOR', cell: ({accelerator}) => accelerator ?? '-'},
    {title: 'REASON', cell: ({reason, last_error}) => reason ?? last_error ?? ''},
  ];
  return styledTable(columns, rows, styleOf);
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
