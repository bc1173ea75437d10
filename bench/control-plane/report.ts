/** The results of the benchmark as a text. */
import type {Check} from './limits.ts';
import type {Size} from './scene.ts';
import type {Ended, Measured} from './scene-work.ts';

export type Row = Measured & Size;

/** `costs`: an idle month and an hour at work. They and the checks are of the main size. */
export type Report = {scenes: Row[]; ends: Ended[]; checks: Check[]; costs: string[]};

const HEAD =
  'workers                 time  processor            reads         writes  trans. class A   class B         peak';

export function print({scenes, ends, checks, costs}: Report): void {
  for (const [what, rows] of Map.groupBy(scenes, ({what}) => what)) {
    console.log(`\n${what}\n${HEAD}`);
    for (const [index, row] of rows.entries()) console.log(line(row, rows[index - 1]));
  }
  for (const end of ends) console.log(linesOfEnd(end));
  if (checks.length > 0) console.log(`\nLimits at the main size\n${checks.map(lineOfCheck).join('\n')}`);
  if (costs.length > 0) console.log(`\n${costs.join('\n')}`);
}

/** Growth against the size before. */
function ratio(now: number, before: number | undefined): string {
  if (before === undefined) return '';
  return before > 0 ? `×${(now / before).toFixed(1)}` : '-';
}

function line(row: Row, before: Row | undefined): string {
  const {seconds, cpu_s, usage, bucket, peak_mb, note} = row;
  const cells = [
    row.workers.toString().padStart(7),
    `${(seconds * 1000).toFixed(1)} ms ${ratio(seconds, before?.seconds)}`.padStart(20),
    `${(cpu_s * 1000).toFixed(1)} ms`.padStart(10),
    `${usage.reads.toFixed(1)} ${ratio(usage.reads, before?.usage.reads)}`.padStart(16),
    `${usage.writes.toFixed(1)} ${ratio(usage.writes, before?.usage.writes)}`.padStart(14),
    `${usage.transactions.toFixed(0)}`.padStart(7),
    `${bucket.class_a.toFixed(1)}`.padStart(8),
    `${bucket.class_b.toFixed(1)}`.padStart(8),
    `${peak_mb.toFixed(0)} MB ${ratio(peak_mb, before?.peak_mb)}`.padStart(12),
  ];
  return `${cells.join(' ')}${note === undefined ? '' : `  ${note}`}`;
}

function linesOfEnd({what, messages, longest_message_s, ...end}: Ended): string {
  return [
    `\n${what}: ${messages} messages that finish the run, the longest ${longest_message_s.toFixed(1)} s`,
    `deletes by tick: ${end.deletes.join(', ')}; the first after ${end.first_delete_s.toFixed(2)} s, the last after ${end.last_delete_s.toFixed(2)} s`,
    `process ${end.peak_mb.toFixed(0)} MB`,
  ].join('\n  ');
}

function lineOfCheck({scene, figure, value, most, is_over}: Check): string {
  const number = value.toLocaleString('en', {maximumFractionDigits: 2});
  const of = `${scene}: ${figure}`;
  return `${of.padEnd(64)} ${number.padStart(9)}  at most ${most.toLocaleString('en').padStart(6)}  ${is_over ? 'over' : 'ok'}`;
}
