import {poolRecords, runRecords} from '../../shared/control-plane/documents/documents.ts';
import {waitText} from '../../shared/domain/waiting/constraint.ts';
import type {Store} from '../../shared/ports.ts';
import {type Cloud, withCloud} from '../cloud/cloud.ts';
import type {CloudOptions} from '../cloud/connect.ts';
import {readFleet, requirePool} from '../cloud/fleet.ts';
import {counted, dollarText, durationText, type Style, table} from '../terminal/format.ts';
import {printJson} from '../terminal/output.ts';
import {printLines, type StyledLine} from '../terminal/styled-lines.ts';
import {rowOf, type TpuRow, totalsOf, totalsText} from './tpu-row.ts';

type Options = CloudOptions & {pool?: string; zone?: string; all?: boolean};

/** Lists the TPUs of the deployment, with what they cost together. */
export async function list(options: Options): Promise<void> {
  await withCloud(options, async cloud => {
    const now = Date.now();
    const found = await rowsOf(cloud, options, now);
    const shown = options.all ? found : found.filter(({phase}) => phase !== 'gone');
    const totals = totalsOf(found);
    if (options.json) return printJson<'tpus list'>({tpus: shown, totals});
    const gone = found.length - shown.length;
    const hidden = gone === 0 ? [] : [{text: `${counted(gone, 'TPU')} gone: --all shows them`}];
    if (shown.length === 0) return printLines([...(await whyNone(cloud.store, options.pool)), ...hidden]);
    printLines([...tpuTable(shown, now), {text: totalsText(totals), style: 'bold'}, ...hidden]);
  });
}

/** Why no TPU is there: the reason of each run and of the jobs that wait for one. */
export async function whyNone(store: Store, pool?: string): Promise<StyledLine[]> {
  const isMeant = (each: {pool: string}) => pool === undefined || each.pool === pool;
  const runs = runRecords.parseAll(await store.query('runs'), () => {}).filter(isMeant);
  const pools = poolRecords.parseAll(await store.query('pools'), () => {}).filter(isMeant);
  const waits = [
    ...runs.flatMap(({run, waits}) => (waits ? `run ${run} waits: ${waitText(waits)}` : [])),
    ...pools.flatMap(({pool, jobs_wait}) =>
      jobs_wait ? `jobs of pool ${pool} wait: ${waitText(jobs_wait)}` : [],
    ),
  ];
  if (waits.length > 0) return waits.map(text => ({text: `no TPU: ${text}`, style: 'yellow' as const}));
  const isNew = runs.some(({status, streams_pending}) => status === 'active' && streams_pending > 0);
  return [
    {text: isNew ? 'no TPU: the next tick creates some' : 'no TPU: TPUs are created when there is work'},
  ];
}

async function rowsOf(cloud: Cloud, {pool, zone}: Options, now: number): Promise<TpuRow[]> {
  const fleet = await readFleet(cloud);
  if (pool !== undefined) requirePool(fleet, pool);
  return fleet.workers
    .filter(
      worker => (pool === undefined || worker.pool === pool) && (zone === undefined || worker.zone === zone),
    )
    .map(worker => rowOf(worker, fleet.pools, now));
}

/** The name and the status come first, because a narrow terminal cuts the right side. */
const COLUMNS = [
  {title: 'TPU'},
  {title: 'STATUS'},
  {title: 'WORKS ON'},
  {title: 'SINCE', right: true},
  {title: '$/H', right: true},
  {title: 'PHASE'},
  {title: 'ZONE'},
  {title: 'ACCELERATOR'},
  {title: 'REASON'},
];

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
  const [head = '', ...lines] = table(COLUMNS, cells);
  return [
    {text: head, style: 'bold', is_row: true},
    ...lines.map((text, index) => ({text, style: rows[index] && styleOf(rows[index]), is_row: true})),
  ];
}

/** A TPU that is gone costs nothing. */
function priceText({phase, usd_per_hour}: TpuRow): string {
  if (phase === 'gone') return '-';
  return usd_per_hour === null ? '?' : dollarText(usd_per_hour);
}

/** `5.2 min`; nothing for a slot that never had a TPU. */
export function ageText(at: string, now: number): string {
  const ms = Date.parse(at);
  return ms === 0 ? '-' : durationText(Math.max(0, now - ms) / 1000);
}

function styleOf({status, phase, work}: TpuRow): Style | undefined {
  if (status === 'PREEMPT' || status === 'MISSING') return 'red';
  if (phase === 'gone') return 'dim';
  return phase === 'working' && work !== null ? 'green' : undefined;
}
