/** Runs the seeds of one thread. The changes of a mistake are made before the control plane is loaded. */
import {parentPort, workerData} from 'node:worker_threads';
import {loadChanged} from './edits.ts';
import type {Report, Share} from './run.ts';

const {first, step, end, without, mistake} = workerData as Share;
loadChanged(mistake);
const {simulate} = await import('./world.ts');

const REPORT_EVERY = 50;

const ZERO = {seeds: 0, events: 0, ticks: 0, ms: 0, wide_ms: 0};

let report: Report = {...ZERO, seen: {}, violations: []};
for (let seed = first; seed < end; seed += step) {
  const started = performance.now();
  const outcome = await simulate(seed, {without: new Set(without)});
  const ms = performance.now() - started;
  report.ms += ms;
  if (outcome.isWide) report.wide_ms += ms;
  report.ticks += outcome.ticks;
  report.seeds += 1;
  report.events += outcome.events;
  for (const [what, times] of Object.entries(outcome.seen)) {
    const before = report.seen[what] ?? {worlds: 0, times: 0};
    report.seen[what] = {worlds: before.worlds + 1, times: before.times + times};
  }
  if (outcome.violation) report.violations.push({seed, violation: outcome.violation});
  if (report.seeds < REPORT_EVERY && !outcome.violation && seed + step < end) continue;
  parentPort?.postMessage(report);
  report = {...ZERO, seen: {}, violations: []};
}
