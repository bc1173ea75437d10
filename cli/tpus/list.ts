import {withCloud} from '../../client/cloud/cloud.ts';
import type {CloudOptions} from '../../client/connection/connect.ts';
import {type Column, counted, durationText, type Style} from '../../client/text/format.ts';
import {print, type StyledLine, table} from '../../client/text/output.ts';
import {priceOfHour, readTpus, type TpuRow, totalsOf, totalsText, whyNone} from '../../client/views/tpus.ts';

type TpuListOptions = CloudOptions & {pool?: string; zone?: string; all?: boolean};

/** Lists the TPUs of the deployment, with what they cost together. */
export async function list(options: TpuListOptions): Promise<void> {
  await withCloud(options, async cloud => {
    const now = Date.now();
    const found = await readTpus(cloud, options, now);
    const shown = options.all ? found : found.filter(({phase}) => phase !== 'gone');
    const totals = totalsOf(found);
    const gone = found.length - shown.length;
    const hidden = gone === 0 ? [] : [`${counted(gone, 'TPU')} gone: --all shows them`];
    const lines: StyledLine[] =
      shown.length === 0
        ? (await whyNone(cloud.store, options.pool)).map(({text, waits}) =>
            waits ? {text, style: 'yellow'} : {text},
          )
        : [...tpuTable(shown, now), {text: totalsText(totals), style: 'bold'}];
    print<'tpus list'>(options.json, {tpus: shown, totals}, [...lines, ...hidden]);
  });
}

/** The name and the status come first, because a narrow terminal cuts the right side. */
export function tpuTable(rows: readonly TpuRow[], now: number): StyledLine[] {
  const columns: Column<TpuRow>[] = [
    {title: 'TPU', cell: ({tpu}) => tpu},
    {title: 'Status', cell: ({status}) => status},
    {title: 'Works on', cell: ({work}) => work ?? '-'},
    {title: 'Since', cell: ({since_at}) => ageText(since_at, now), right: true},
    {title: '$/H', cell: priceText, right: true},
    {title: 'Phase', cell: ({phase}) => phase},
    {title: 'Zone', cell: ({zone}) => zone},
    {title: 'Accelerator', cell: ({accelerator}) => accelerator ?? '-'},
    {title: 'Reason', cell: ({reason, last_error}) => reason ?? last_error ?? ''},
  ];
  return table(columns, rows, styleOf);
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
