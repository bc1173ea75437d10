/** Breakers stop repeated failures: creates of a pool or zone whose boots fail, and a run that ends machines. */
import {type PublishTimes, withPublishTime} from '../commands/publish-order.ts';
import {isOlderThan, iso} from '../time.ts';

/** Outcome of recent boots of a pool or zone. A node that Cloud TPU took does not count. */
export type Boots = {
  /** Failed boots in a row, and the time and the cause of the last. */
  unheard: number;
  unheard_at: string | null;
  reason: string | null;
  /** Start of the stop, which lets one node an hour be created, and time of the last such try. */
  stopped_at: string | null;
  tried_at: string | null;
  /** The worker bundle that these nodes ran. */
  bundle: string;
};

const MOST_FAILED = 5;
/** Seconds between two tries during a stop. The clock counts: without a living worker no time is served. */
const TRY_S = 3600;

export const NO_BOOTS: Boots = {
  ...{unheard: 0, unheard_at: null, reason: null},
  ...{stopped_at: null, tried_at: null, bundle: ''},
};

export function afterFailedBoot(boots: Boots, bundle: string, reason: string, now: number): Boots {
  const before = boots.bundle === bundle ? boots : NO_BOOTS;
  const unheard = before.unheard + 1;
  const stopped_at = before.stopped_at ?? (unheard >= MOST_FAILED ? iso(now) : null);
  return {...before, unheard, unheard_at: iso(now), reason, stopped_at, bundle};
}

/** The breaker after the first word of an agent at `agent_at`. A word of a host in its boot is no success. */
export function afterGoodBoot(boots: Boots, agent_at: string): Boots {
  return boots.unheard_at !== null && agent_at > boots.unheard_at ? NO_BOOTS : boots;
}

export function isStopped(boots: Boots, bundle: string): boolean {
  return boots.stopped_at !== null && boots.bundle === bundle;
}

/** True if a node may be created: no stop, or an hour since the stop and since the last try. */
export function mayBoot(boots: Boots, bundle: string, now: number): boolean {
  const {stopped_at, tried_at} = boots;
  return (
    !isStopped(boots, bundle) || [stopped_at, tried_at ?? stopped_at].every(at => isOlderThan(at, TRY_S, now))
  );
}

/** Records the last try of a zone, also where only the pool is stopped: zones take turns. */
export function afterTry(boots: Boots, now: number): Boots {
  return {...boots, tried_at: iso(now)};
}

/** The zone for the next try of a stopped pool: the zone with the oldest try. */
export function nextToTry(
  zones: readonly {zone: string; boots: Boots}[],
  bundle: string,
  now: number,
): string | undefined {
  const ready = zones.filter(({boots}) => mayBoot(boots, bundle, now));
  const tried = ({boots}: {boots: Boots}) => boots.tried_at ?? '';
  return ready.sort((a, b) => tried(a).localeCompare(tried(b)))[0]?.zone;
}

/** Gives the try back if the node requested at `asked_at` was the try, and was refused or taken before its agent spoke. */
export function withoutTry(boots: Boots, asked_at: string | null): Boots {
  return boots.tried_at !== null && boots.tried_at === asked_at ? {...boots, tried_at: null} : boots;
}

/** Machine deaths of a run since its last `resume`. */
export type MachineDeaths = {
  /** Machines in a row that died at work on the run without a stored shard, and the run's shards by then. */
  machine_deaths: number;
  machine_deaths_shards: number;
  /** Streams that failed because their machines died. */
  machine_failed_streams: number;
  /** Time of the last counted silent machine without a verdict of a probe. */
  unjudged_death_at: string | null;
};

export const NO_MACHINE_DEATHS: MachineDeaths = {
  machine_deaths: 0,
  machine_deaths_shards: 0,
  machine_failed_streams: 0,
  unjudged_death_at: null,
};

const MOST_MACHINE_DEATHS = 10;
const MOST_MACHINE_FAILED_STREAMS = 3;
/** Seconds in which silent machines without a verdict of a probe count as one: their silence may be our fault. */
const UNJUDGED_S = 600;

/** Fields of a run that the breaker needs. */
type Breakable = MachineDeaths & {
  status: string;
  reason: string | null;
  said: PublishTimes;
  total_shards: number;
  updated_at: string;
};

/** `is_judged`: the cause is not silence, or a probe of the zone has spoken since. `total_shards`: shards of the run by now. */
export type MachineDeath = {worker: string; cause: string; is_judged: boolean; total_shards: number};

/** The run after the death of a worker at its work. */
export function afterMachineDeath<R extends Breakable>(
  run: R,
  {worker, cause, is_judged, total_shards}: MachineDeath,
  now: number,
): R {
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
  const why = `${machine_deaths} machines in a row died at work on it, and no shard was stored`;
  return paused(counted, `${why}; the last was ${worker}: ${cause}`, now);
}

/** The run after a stream failed because its machines died. */
export function afterMachineFailedStream<R extends Breakable>(run: R, stream: string, now: number): R {
  const machine_failed_streams = run.machine_failed_streams + 1;
  const counted = {...run, machine_failed_streams, updated_at: iso(now)};
  if (machine_failed_streams < MOST_MACHINE_FAILED_STREAMS) return counted;
  return paused(
    counted,
    `${machine_failed_streams} streams failed for the deaths of their machines, the last was ${stream}`,
    now,
  );
}

/** Pauses the run. Only a `resume` published later ends the pause. */
function paused<R extends Breakable>(run: R, why: string, now: number): R {
  if (run.status !== 'active') return run;
  const said = withPublishTime(run.said, ['status'], iso(now));
  return {...run, status: 'paused', reason: `${why}. Find the cause, then resume the run`, said};
}
