/** Slots for waiting jobs of several slices: a job gets all slices in one zone, or none. */

import {slotsOf} from '../fleet/slots.ts';
import {type Job, waitsSince} from '../records/job.ts';
import type {Pool} from '../records/pool.ts';
import type {Worker, Workers} from '../records/worker.ts';
import {isOlderThan, iso} from '../time.ts';
import {slotConstraint} from '../worker/tpu-constraint.ts';

/** `silent`: workers that have sent nothing for too long. They serve no job until they send a heartbeat. */
type Fleet = {pool: Pool; workers: Workers; silent: ReadonlySet<string>};

/**
 * `wanted`: slots that get or keep a TPU. `reservedFor`: these and the slots that no later work may use, with the job that gathers them.
 * `yieldingTo`: slots at work that the job gets next. `timeouts`: jobs whose slices have waited too long for the others in a zone, with the
 * slots: a tick releases them and pauses the zone for the job.
 */
export type Gathering = {
  wanted: ReadonlySet<string>;
  reservedFor: ReadonlyMap<string, string>;
  yieldingTo: ReadonlyMap<string, string>;
  timeouts: readonly {job: string; zone: string; names: string[]}[];
};

export const NO_GATHERING: Gathering = {
  wanted: new Set(),
  reservedFor: new Map(),
  yieldingTo: new Map(),
  timeouts: [],
};

/**
 * Order in which slots serve a job: those whose TPU is ready, or will be, come first. A TPU in phase `working` without work has just lost its
 * job. A slot whose TPU is being deleted comes after an empty one, and a TPU at work comes last.
 */
const RANKS: Partial<Record<Worker['phase'], number>> = {
  idle: 0,
  working: 1,
  booting: 2,
  creating: 3,
  gone: 4,
  deleting: 5,
};
const AT_WORK = 6;

/** The pause of a zone doubles at most this often: from ten minutes up to 21 hours. */
const MOST_DOUBLINGS = 7;

/**
 * The slots of each job, in order of the jobs. A job gets slots of the zone in which it waits for the fewest TPUs at work, and then for the
 * fewest creates. Slices that have waited longer than `boot_s` for a create or a boot are released, and the zone is paused.
 */
export function gatherSlots(fleet: Fleet, jobs: readonly Job[], boot_s: number, now: number): Gathering {
  const [wanted, kept, yielding] = [new Set<string>(), new Map<string, string>(), new Map<string, string>()];
  const vain: Gathering['timeouts'][number][] = [];
  const chosen = new Set<string>();
  for (const [index, job] of jobs.entries()) {
    if (job.slices === 1) continue;
    const groups = fleet.pool.zones.flatMap(zone => {
      const paused_until_at = pauseIn(zone, job, jobs.slice(0, index + 1));
      const group = () => groupIn(fleet, zone, job, chosen, {paused_until_at, boot_s}, now);
      return paused_until_at > iso(now) ? [] : (group() ?? []);
    });
    for (const {zone, isTimedOut, free} of groups)
      if (isTimedOut) vain.push({job: job.job, zone, names: free.map(({name}) => name)});
    const [best] = groups
      .filter(({isTimedOut}) => !isTimedOut)
      .sort((a, b) => a.atWork.length - b.atWork.length || a.missing - b.missing);
    for (const {free, isTimedOut} of groups) for (const {name} of free) if (isTimedOut) chosen.add(name);
    for (const {name} of [...(best?.free ?? []), ...(best?.atWork ?? [])]) chosen.add(name);
    for (const {name} of best?.wanted ?? []) wanted.add(name);
    for (const {name} of best?.free ?? []) kept.set(name, job.job);
    for (const {name} of best?.atWork ?? []) yielding.set(name, job.job);
  }
  return {wanted, reservedFor: kept, yieldingTo: yielding, timeouts: vain};
}

type Member = {name: string; worker: Worker | undefined};
type Group = {
  zone: string;
  isTimedOut: boolean;
  free: Member[];
  wanted: Member[];
  atWork: Member[];
  missing: number;
};

/** End of the pause of the zone: it had too few slices for this job, or for an earlier job that needs as many or fewer. */
function pauseIn(zone: string, {slices}: Job, before: readonly Job[]): string {
  const ends = before.flatMap(job =>
    job.slices <= slices ? (job.reservation_timeouts[zone]?.next_at ?? []) : [],
  );
  return ends.sort().at(-1) ?? '';
}

/** Undefined if the zone has too few slots for the job now. */
function groupIn(
  {pool, workers, silent}: Fleet,
  zone: string,
  job: Job,
  chosen: ReadonlySet<string>,
  {paused_until_at, boot_s}: {paused_until_at: string; boot_s: number},
  now: number,
): Group | undefined {
  const since_at = waitsSince(job);
  const isLate = isOlderThan(since_at, pool.job_wait_s, now);
  const members = slotsOf(pool)
    .filter(({name, zone: each}) => each === zone && !chosen.has(name) && !silent.has(name))
    .map(({name}) => ({name, worker: workers.get(name)}))
    .filter(({worker}) => rankOf(worker, now) < (isLate ? AT_WORK + 1 : AT_WORK))
    .sort((a, b) => rankOf(a.worker, now) - rankOf(b.worker, now))
    .slice(0, job.slices);
  if (members.length < job.slices) return undefined;
  const atWork = members.filter(({worker}) => worker?.work);
  const free = members.filter(({worker}) => !worker?.work);
  const isTooLong = ({worker}: Member) => {
    const from_at = [worker?.phase_since_at ?? '', since_at, paused_until_at].sort().at(-1) ?? '';
    return worker?.phase === 'idle' && isOlderThan(from_at, boot_s, now);
  };
  const isEmpty = ({worker}: Member) => ['gone', 'deleting'].includes(worker?.phase ?? 'gone');
  const group = {zone, isTimedOut: false, free, atWork, missing: free.filter(isEmpty).length};
  // The jobs at work end by their timeout. Until then the slots are reserved, and no TPU waits longer for them.
  if (atWork.length > 0) return {...group, wanted: free.filter(each => !isEmpty(each) && !isTooLong(each))};
  const idle = free.filter(({worker}) => worker?.phase === 'idle').length;
  const hasSurvivor = free.some(({worker}) => ['idle', 'working'].includes(worker?.phase ?? 'gone'));
  // A deletion may never end, so only slices that survived another one wait for it, for `boot_s` at most.
  if (!hasSurvivor && free.some(({worker}) => worker?.phase === 'deleting')) return undefined;
  return {...group, isTimedOut: idle < job.slices && free.some(isTooLong), wanted: free};
}

/** Infinity if the slot cannot serve a job. */
function rankOf(worker: Worker | undefined, now: number): number {
  if (slotConstraint(worker, now)) return Number.POSITIVE_INFINITY;
  if (worker?.work) return worker.phase === 'working' ? AT_WORK : Number.POSITIVE_INFINITY;
  return RANKS[worker?.phase ?? 'gone'] ?? Number.POSITIVE_INFINITY;
}

/** The job after its slices have waited too long in the zone: the zone gets a pause, which doubles each time. Undefined during a pause. */
export function afterReservationTimeout(
  job: Job,
  zone: string,
  boot_s: number,
  now: number,
): Job | undefined {
  const {count, next_at} = job.reservation_timeouts[zone] ?? {count: 0, next_at: ''};
  if (next_at > iso(now)) return undefined;
  const pause_s = boot_s * 2 ** Math.min(count, MOST_DOUBLINGS);
  const reservation_timeouts = {
    ...job.reservation_timeouts,
    [zone]: {count: count + 1, next_at: iso(now + pause_s * 1000)},
  };
  return {...job, reservation_timeouts, updated_at: iso(now)};
}
