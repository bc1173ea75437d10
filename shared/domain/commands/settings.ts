/** Decisions about the settings of runs and of the pool, which operators change with `configure` and `scale`. */
import {type Ceilings, nodeNameProblem, poolProblem} from '../billing/ceilings.ts';
import {acceleratorProblem, runtimeProblem} from '../fleet/accelerators.ts';
import type {Pool} from '../records/pool.ts';
import type {poolSettings} from '../records/pool-settings.ts';
import {type Provider, providerProblem} from '../records/providers.ts';
import {outdatedText, splitByPublishTime, type Timed, withPublishTime} from '../records/publish-order.ts';
import type {Run} from '../records/run.ts';
import type {runChanges} from '../records/spec-keys.ts';
import {iso, msOf, utcText} from '../time.ts';
import {applied, type Decision, isOutdated, noRun, outdatedBy, rejected} from './commands.ts';

/** Settings of a run and of a pool that may change at any time. A setting may change the cost of work, never the content of shards. */
type Settings<T, Field extends keyof T> = {[Key in Field]?: T[Key] | undefined};
type RunSettings = Settings<Run, keyof typeof runChanges>;
export type PoolSettings = Settings<Pool, 'zones' | keyof typeof poolSettings>;

export function decideConfigure(
  name: string,
  run: Run | undefined,
  settings: RunSettings,
  if_version: number | undefined,
  published_at: string,
  now: number,
): Decision<Run> {
  if (!run) return noRun(name);
  if (run.status === 'stopped') return rejected(`run "${name}" was stopped, and a stop is final`);
  const stale = staleFor(`run "${name}"`, run.version, if_version);
  if (stale) return stale;
  const {current, message_times, outdated} = sortSettings(run, settings, published_at);
  if (!current) return outdatedBy(run, outdated);
  const next = {...run, ...current, message_times, version: run.version + 1, updated_at: iso(now)};
  const held = run.status === 'paused' ? '; it is paused, until it is resumed' : '';
  const what = `${name} has ${settingsText(current)}, version ${next.version}${alsoOutdated(run, outdated)}${held}`;
  return applied(next, what);
}

export function decideScale(
  pool: Pool,
  settings: PoolSettings,
  if_version: number | undefined,
  {ceilings, elsewhere = 0, longest_poll_s = Number.POSITIVE_INFINITY, providers}: PoolLimits,
  published_at: string,
): Decision<Pool> {
  const stale = staleFor(`pool "${pool.pool}"`, pool.version, if_version);
  if (stale) return stale;
  const {current, message_times, outdated} = sortSettings(pool, settings, published_at);
  if (!current) return outdatedBy(pool, outdated);
  // A pool may always shrink, however large the other pools are.
  const isLarger = slotsIn({...pool, ...current}) > slotsIn(pool);
  // A pool without slots buys nothing, so it may be emptied even in a zone that the deployment no longer allows.
  const isEmptied = current.zones === undefined && slotsIn({...pool, ...current}) === 0;
  const tooLarge = isEmptied
    ? undefined
    : poolProblem({...pool, ...current}, ceilings, isLarger ? elsewhere : 0);
  const isKind = current.provisioning !== undefined;
  const unfit = isKind ? providerProblem({...pool, ...current}, providers ?? [pool.provider]) : undefined;
  const refused = tooLarge ?? nodeNameProblem({...pool, ...current}) ?? unfit;
  if (refused) return rejected(refused);
  const slow = pollProblem(current.poll_s, longest_poll_s);
  if (slow) return rejected(slow);
  const next = {...pool, ...current, message_times, version: pool.version + 1};
  const what = `pool ${pool.pool} has ${settingsText(current)}, version ${next.version}${alsoOutdated(pool, outdated)}`;
  return applied(next, what);
}

/**
 * `elsewhere`: slots of the other pools. `longest_poll_s`: an idle worker that is silent for longer counts as stalled. `providers`: those of
 * the deployment, by default only that of the pool. `max_hosts`: hosts that a TPU may have.
 */
export type PoolLimits = {
  ceilings: Ceilings;
  elsewhere?: number;
  longest_poll_s?: number;
  providers?: readonly Provider[];
  max_hosts?: number;
};

export function slotsIn({zones, workers_per_zone}: Pick<Pool, 'zones' | 'workers_per_zone'>): number {
  return zones.length * workers_per_zone;
}

function pollProblem(poll_s: number | undefined, longest_poll_s: number): string | undefined {
  if (poll_s === undefined || poll_s <= longest_poll_s) return undefined;
  return `poll_s ${poll_s} is more than ${longest_poll_s} s, half of GLEANER_STALL_S, after which an idle worker is replaced`;
}

/** Keeps TPUs without work for some minutes, counted from the publish time however late the message arrives. Without minutes, keeps none. */
export function decideKeep(
  pool: Pool,
  {minutes, workers}: {minutes: number; workers: number},
  published_at: string,
  now: number,
): Decision<Pool> {
  if (isOutdated(pool, 'keep', published_at)) return outdatedBy(pool, ['keep']);
  const message_times = withPublishTime(pool.message_times, ['keep'], published_at);
  if (minutes === 0)
    return applied({...pool, message_times, keep: null}, `pool ${pool.pool} keeps no TPU without work`);
  const until_ms = msOf(published_at) + minutes * 60_000;
  if (until_ms <= now) return rejected(`too late: its ${minutes} minutes ended at ${utcText(until_ms)}`);
  const slots = slotsIn(pool);
  if (workers > slots)
    return rejected(
      `pool "${pool.pool}" has ${slots} in all, and cannot keep ${workers} TPUs: scale it first`,
    );
  const what = `pool ${pool.pool} keeps ${workers} of its TPUs until ${utcText(until_ms)}`;
  return applied({...pool, message_times, keep: {workers, until_at: iso(until_ms)}}, what);
}

/** A pool without a document yet. Provider, accelerator, runtime version, disk and spot never change afterwards. */
export function decideNewPool(
  pool: Pool,
  {ceilings, elsewhere = 0, longest_poll_s = Number.POSITIVE_INFINITY, providers, max_hosts}: PoolLimits,
  fields: readonly string[],
  published_at: string,
): Decision<Pool> {
  const refused =
    providerProblem(pool, providers ?? [pool.provider]) ??
    acceleratorProblem(pool.accelerator, pool.provider, max_hosts) ??
    runtimeProblem(pool.accelerator, pool.runtime_version, pool.provider) ??
    poolProblem(pool, ceilings, elsewhere) ??
    nodeNameProblem(pool) ??
    pollProblem(pool.poll_s, longest_poll_s);
  if (refused) return rejected(refused);
  const next = {...pool, version: 1, message_times: withPublishTime({}, fields, published_at)};
  const what = `pool ${pool.pool} has ${pool.workers_per_zone} ${pool.accelerator} in each of ${pool.zones.join(', ')}`;
  return applied(next, what);
}

export function alsoOutdated({message_times}: Timed, fields: readonly string[]): string {
  return fields.length > 0 ? `; ${outdatedText(message_times, fields)}` : '';
}

/** `current`: the settings that no later message has set; undefined if later messages have set all of them. */
export function sortSettings<T extends object>({message_times}: Timed, settings: T, published_at: string) {
  const all = given(settings);
  const {current, outdated} = splitByPublishTime(message_times, Object.keys(all), published_at);
  const currentSettings = Object.fromEntries(Object.entries(all).filter(([key]) => current.includes(key)));
  return {
    current: current.length > 0 ? (currentSettings as Partial<typeof all>) : undefined,
    outdated,
    message_times: withPublishTime(message_times, current, published_at),
  };
}

function staleFor(name: string, version: number, if_version: number | undefined) {
  if (if_version === undefined || if_version === version) return undefined;
  const reason = `${name} is at version ${version}, not ${if_version}: read it and send the message again`;
  return rejected(reason);
}

function given<T extends object>(settings: T): {[K in keyof T]: Exclude<T[K], undefined>} {
  const present = Object.entries(settings).filter(([, value]) => value !== undefined);
  return Object.fromEntries(present) as {[K in keyof T]: Exclude<T[K], undefined>};
}

function settingsText(settings: object): string {
  return Object.entries(given(settings))
    .map(([key, value]) => `${key} ${value === null ? 'none' : JSON.stringify(value)}`)
    .join(', ');
}
