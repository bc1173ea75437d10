/** A fleet at work in a test world, and questions of tests about it. */

import {zoneRecords} from '../../../shared/control-plane/documents/documents.ts';
import {type Limiter, OPEN} from '../../../shared/domain/records/limiter.ts';
import type {Worker} from '../../../shared/domain/records/worker.ts';
import {afterFailedBoot} from '../../../shared/domain/zone/limiter.ts';
import {someLines} from '../shard-plan.ts';
import {World} from '../world.ts';
import {ZONE} from './places.ts';

export const RUN = 'my-run';

/** So many workers in each zone, each at work on a long stream of its own. */
export async function aFleet(workers: number, set: Record<string, string> = {}): Promise<World> {
  const world = new World({
    GLEANER_ZONES: ZONE,
    GLEANER_WORKERS_PER_ZONE: String(workers),
    GLEANER_MAX_WORKERS: '1000',
    GLEANER_STALL_S: '86400',
    GLEANER_LOAD_S: '86400',
    ...set,
  });
  const count = workers * (set.GLEANER_ZONES ?? ZONE).split(',').length;
  for (let index = 0; index < count; index++) world.drop(RUN, index, someLines(400, `s${index}`));
  const areAtWork = () =>
    world.agents.size === count && [...world.agents.values()].every(({state}) => state === 'working');
  await world.until('work', areAtWork, 15, 1);
  return world;
}

export async function workersOf(world: World): Promise<Worker[]> {
  const stored = await world.store.query('workers');
  return Promise.all(stored.map(async ({id}) => (await world.worker(id)) as Worker));
}

export const zoneOf = (world: World, zone = ZONE) => zoneRecords.get(world.store, zone);
export const silenceGuardOf = async (world: World) => (await zoneOf(world))?.silence_guard ?? null;

/** The workers of a zone whose first node is there. */
export const firstLives = async (world: World, zone = ZONE) =>
  (await workersOf(world)).filter(
    worker =>
      worker.zone === zone &&
      worker.incarnation === 1 &&
      worker.phase !== 'deleting' &&
      worker.phase !== 'gone',
  );

/** The number of faults that the streams of the run are charged. */
export async function faults(world: World): Promise<number> {
  const streams = await world.store.query(`runs/${RUN}/streams`);
  return streams.reduce((sum, {data}) => sum + Number(data.faults), 0);
}

export const errors = (world: World, pattern: RegExp) =>
  world.logs.filter(({severity, message}) => severity === 'ERROR' && pattern.test(message));

/** Silences the agents that `isSilent` names from now on. */
export function silence(world: World, isSilent: (name: string) => boolean = () => true): void {
  for (const [name, agent] of world.agents) agent.silent ||= isSilent(name);
}

/** Minutes in which agents send heartbeats and do nothing else. */
export const wait = (world: World, minutes: number) => world.minutes(minutes, 0);

/** Minutes in which no agent says a word, and no later one either. */
export async function waitInSilence(world: World, minutes: number): Promise<void> {
  silence(world);
  world.isStillborn = () => true;
  await wait(world, minutes);
}

/** Stops the creates of the zone, as five failed boots in a row do. */
export async function stopCreates(world: World): Promise<void> {
  const {bundle} = world.deps.config;
  const limiter = Array.from({length: 5}).reduce<Limiter>(
    found => afterFailedBoot(found, bundle, 'no disk', world.now),
    OPEN,
  );
  await world.store.transaction(async tx => {
    const zone = await zoneRecords.get(tx, ZONE);
    if (zone) zoneRecords.set(tx, {...zone, limiter});
  });
}
