/** Slots for waiting jobs of several slices: all slices of a job in one zone, or none. */
import type {Job} from '../job/job.ts';
import {isOlderThan} from '../time.ts';
import {slotConstraint} from '../waiting/tpu-constraint.ts';
import type {Worker} from '../worker/worker.ts';
import {type Pool, slotsOf} from './pool.ts';

type Fleet = {pool: Pool; workers: ReadonlyMap<string, Worker>};

/**
 * Order in which slots serve a job: the slots whose TPU is ready, or will be, come first. A TPU in phase `working` without work has just lost
 * its job. A slot whose TPU is deleted comes last.
 */
const RANKS: Partial<Record<Worker['phase'], number>> = {
  idle: 0,
  working: 1,
  booting: 2,
  creating: 3,
  gone: 4,
  deleting: 5,
};

/**
 * The slots that the jobs need, by the first job first. A job that finds too few free slots in every zone gets none: its TPUs would wait
 * without end. Nor does it get the slots of a zone in which a TPU has waited for the others for `boot_s`.
 */
export function gangSlots(fleet: Fleet, jobs: readonly Job[], boot_s: number, now: number): Set<string> {
  const chosen = new Set<string>();
  for (const {slices} of jobs) {
    if (slices === 1) continue;
    const groups = fleet.pool.zones.flatMap(zone => groupIn(fleet, zone, slices, chosen, boot_s, now) ?? []);
    const [best] = groups.sort((a, b) => a.missing - b.missing);
    for (const name of best?.names ?? []) chosen.add(name);
  }
  return chosen;
}

function groupIn(
  {pool, workers}: Fleet,
  zone: string,
  slices: number,
  chosen: ReadonlySet<string>,
  boot_s: number,
  now: number,
): {names: string[]; missing: number} | undefined {
  const rankOf = (worker: Worker | undefined) =>
    worker?.work || slotConstraint(worker, now) ? undefined : RANKS[worker?.phase ?? 'gone'];
  const free = slotsOf(pool)
    .filter(({name, zone: each}) => each === zone && !chosen.has(name))
    .map(({name}) => ({name, worker: workers.get(name)}))
    .filter(({worker}) => rankOf(worker) !== undefined)
    .sort((a, b) => (rankOf(a.worker) ?? 0) - (rankOf(b.worker) ?? 0))
    .slice(0, slices);
  const idle = free.flatMap(({worker}) => (worker?.phase === 'idle' ? worker : []));
  const isLate = idle.length < slices && idle.some(each => isOlderThan(each.phase_since_at, boot_s, now));
  const hasSurvivor = free.some(({worker}) => ['idle', 'working'].includes(worker?.phase ?? 'gone'));
  // A deletion may take without end: only the slices that survived another one wait for it, for `boot_s` at most.
  const isPointless = !hasSurvivor && free.some(({worker}) => worker?.phase === 'deleting');
  if (free.length < slices || isLate || isPointless) return undefined;
  const missing = free.filter(({worker}) => ['gone', 'deleting'].includes(worker?.phase ?? 'gone')).length;
  return {names: free.map(({name}) => name), missing};
}
