import {withPublishTime} from '../records/publish-order.ts';
import type {Run} from '../records/run.ts';
import {isOlderThan, iso} from '../time.ts';

const MOST_MACHINE_DEATHS = 10;
const MOST_MACHINE_FAILED_STREAMS = 3;
/** Within this many seconds, silent machines without a verdict of a canary count as one, because the fault may be ours. */
const UNJUDGED_S = 600;

/** `is_judged`: the cause is not silence, or a canary of the zone has sent a heartbeat since. `total_shards`: shards of the run so far. */
export type MachineDeath = {worker: string; cause: string; is_judged: boolean; total_shards: number};

export function afterMachineDeath(run: Run, death: MachineDeath, now: number): Run {
  const {worker, cause, is_judged, total_shards} = death;
  const {unjudged_death_at} = run;
  if (!is_judged && unjudged_death_at !== null && !isOlderThan(unjudged_death_at, UNJUDGED_S, now))
    return run;
  const machine_deaths_shards = Math.max(run.total_shards, total_shards);
  const machine_deaths = machine_deaths_shards > run.machine_deaths_shards ? 1 : run.machine_deaths + 1;
  const counted = {
    ...run,
    machine_deaths,
    machine_deaths_shards,
    unjudged_death_at: is_judged ? unjudged_death_at : iso(now),
    updated_at: iso(now),
  };
  if (machine_deaths < MOST_MACHINE_DEATHS) return counted;
  const why = `${machine_deaths} machines in a row died while working on it without storing a shard`;
  return paused(counted, `${why}; the last was ${worker}: ${cause}`, now);
}

export function afterMachineFailedStream(run: Run, stream: string, now: number): Run {
  const machine_failed_streams = run.machine_failed_streams + 1;
  const counted = {...run, machine_failed_streams, updated_at: iso(now)};
  if (machine_failed_streams < MOST_MACHINE_FAILED_STREAMS) return counted;
  return paused(
    counted,
    `${machine_failed_streams} streams failed because their machines died, the last was ${stream}`,
    now,
  );
}

/** Pauses the run. Only a `resume` that is published later ends the pause. */
function paused(run: Run, why: string, now: number): Run {
  if (run.status !== 'active') return run;
  const message_times = withPublishTime(run.message_times, ['status'], iso(now));
  const reason = `${why}. Find the cause, then resume the run`;
  return {...run, status: 'paused', reason, paused_at: iso(now), message_times};
}
