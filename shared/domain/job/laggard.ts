/** The host of a running attempt that the other hosts wait for. */
import type {JobLease} from '../records/job.ts';
import type {Worker} from '../records/worker.ts';
import {FIRST_HOST, hostText} from '../worker/hosts.ts';
import {type JobEnd, processesOf} from './lifecycle.ts';

type Attempt = {lease: JobLease | null; ends: Readonly<Record<string, unknown>>};
type Laggard = {index: number; processes: number; hasLeft: boolean};

/** What a host says of its process: `waiting` for others in a collective of JAX, `ended`, or at work. */
function activityOf({activity, hosts}: Worker, host: number): string | null {
  return host === FIRST_HOST ? activity : (hosts[host]?.phase ?? null);
}

/** Undefined while no host waits in JAX, or more than one is at work. `holders`: the workers of the attempt. */
export function laggardOf({lease, ends}: Attempt, holders: readonly Worker[]): Laggard | undefined {
  const processes = lease ? processesOf(lease) : 1;
  if (!lease || processes === 1) return undefined;
  const names = lease.members.length > 0 ? lease.members.map(({worker}) => worker) : [lease.worker];
  const activities = names.flatMap(name => {
    const worker = holders.find(each => each.name === name);
    return Array.from({length: lease.host_count}, (_, host) => (worker ? activityOf(worker, host) : null));
  });
  const isGone = (activity: string | null, index: number) => index in ends || activity === 'ended';
  if (!activities.some((activity, index) => activity === 'waiting' && !isGone(activity, index)))
    return undefined;
  const left = activities.findIndex(isGone);
  if (left >= 0) return {index: left, processes, hasLeft: true};
  const [index, ...others] = activities.flatMap((activity, at) => (activity === 'waiting' ? [] : [at]));
  return index === undefined || others.length > 0 ? undefined : {index, processes, hasLeft: false};
}

export function laggardText({index, processes, hasLeft}: Laggard): string {
  const did = hasLeft ? 'left early, although its code ended well' : 'does not join them';
  return `the other hosts wait in JAX for ${hostText(index, processes)}, which ${did}`;
}

/** The end of one host. A longer timeout would not help hosts that wait for one of them. */
export function withLaggard(
  end: JobEnd,
  job: Attempt & {timeout: number},
  holders: readonly Worker[],
): JobEnd {
  const laggard = end.cause === 'timeout' ? laggardOf(job, holders) : undefined;
  return laggard ? {...end, error: `after its timeout of ${job.timeout} s ${laggardText(laggard)}`} : end;
}
