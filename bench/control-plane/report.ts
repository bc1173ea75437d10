/** The results of the benchmark as a text. */
import type {Check} from './limits.ts';
import type {IdleMonth} from './prices.ts';
import type {Size} from './scene.ts';
import type {Ended, Measured} from './scene-work.ts';

export type Row = Measured & Size;

/** The output of `--json`. The checks and the idle month are of the main size. */
export type Report = {scenes: Row[]; ends: Ended[]; checks: Check[]; idle_month: IdleMonth | null};

const HEAD =
  'workers                 time  processor            reads         writes  trans. class A   class B  publ.   largest commit         peak';

export function print({scenes, ends, checks, idle_month}: Report): void {
  for (const [what, rows] of Map.groupBy(scenes, ({what}) => what)) {
    console.log(`\n${what}\n${HEAD}`);
    for (const [index, row] of rows.entries()) console.log(line(row, rows[index - 1]));
  }
  for (const end of ends) console.log(linesOfEnd(end));
  if (checks.length > 0) console.log(`\nLimits at the main size\n${checks.map(lineOfCheck).join('\n')}`);
  if (idle_month) console.log(`\n${lineOfMonth(idle_month)}`);
}

/** Growth against the size before. */
function ratio(now: number, before: number | undefined): string {
  if (before === undefined) return '';
  return before > 0 ? `×${(now / before).toFixed(1)}` : '-';
}

function line(row: Row, before: Row | undefined): string {
  const {seconds, cpu_s, usage, bucket, published, peak_mb, note} = row;
  const cells = [
    row.workers.toString().padStart(7),
    `${(seconds * 1000).toFixed(1)} ms ${ratio(seconds, before?.seconds)}`.padStart(20),
    `${(cpu_s * 1000).toFixed(1)} ms`.padStart(10),
    `${usage.reads.toFixed(1)} ${ratio(usage.reads, before?.usage.reads)}`.padStart(16),
    `${usage.writes.toFixed(1)} ${ratio(usage.writes, before?.usage.writes)}`.padStart(14),
    `${usage.transactions.toFixed(0)}`.padStart(7),
    `${bucket.class_a.toFixed(1)}`.padStart(8),
    `${bucket.class_b.toFixed(1)}`.padStart(8),
    `${published.toFixed(0)}`.padStart(7),
    `${usage.most_writes} (${(usage.most_bytes / 1024).toFixed(0)} KiB)`.padStart(16),
    `${peak_mb.toFixed(0)} MB ${ratio(peak_mb, before?.peak_mb)}`.padStart(12),
  ];
  return `${cells.join(' ')}${note === undefined ? '' : `  ${note}`}`;
}

function linesOfEnd(end: Ended): string {
  const {what, ticks, messages, first_delete_s, last_delete_s, deletes} = end;
  const counts = deletes.filter(count => count > 0).join(', ');
  return [
    `\n${what}: ${ticks} ticks, the longest ${end.longest_s.toFixed(1)} s; ${messages} messages that finish the run, the longest ${end.longest_message_s.toFixed(1)} s`,
    `at most ${end.longest_cpu_s.toFixed(1)} s of processor time for a tick or a message`,
    `deletes by tick: ${counts}; the first after ${first_delete_s.toFixed(2)} s, the last after ${last_delete_s.toFixed(2)} s`,
    `peak heap ${end.peak_heap_mb.toFixed(0)} MB of 128 MB, process ${end.peak_mb.toFixed(0)} MB`,
  ].join('\n  ');
}

function lineOfCheck({scene, figure, value, most, is_over}: Check): string {
  const number = value.toLocaleString('en', {maximumFractionDigits: 2});
  const of = `${scene}: ${figure}`;
  return `${of.padEnd(64)} ${number.padStart(9)}  at most ${most.toLocaleString('en').padStart(6)}  ${is_over ? 'over' : 'ok'}`;
}

function lineOfMonth({usd, ticks, ticks_usd, resyncs, resyncs_usd, scheduler_usd}: IdleMonth): string {
  const [all, of_ticks, of_resyncs, of_job] = [usd, ticks_usd, resyncs_usd, scheduler_usd].map(
    each => `$${each.toFixed(2)}`,
  );
  return `An idle month costs ${all}: ${of_ticks} for ${ticks.toLocaleString('en')} ticks, ${of_resyncs} for ${resyncs.toLocaleString('en')} resyncs of the bucket, ${of_job} for the job of the Scheduler`;
}
