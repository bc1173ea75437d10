/** The end of every TPU of a deployment: pools get no slots, their TPUs finish their shards and go. Each step is safe to repeat. */

import type {Cloud} from '../../client/cloud/cloud.ts';
import {outcomeOf, publish} from '../../client/cloud/send-message.ts';
import {type GoogleApi, type Json, listAll} from '../../client/google/api.ts';
import {CliError} from '../../client/text/errors.ts';
import {counted} from '../../client/text/format.ts';
import {say} from '../../client/text/output.ts';
import {poolRecords, workerRecords, zoneRecords} from '../../shared/control-plane/documents/documents.ts';
import {labelsOf, poolOf} from '../../shared/domain/deployment.ts';
import {parseWorkerName} from '../../shared/domain/names.ts';
import {isForbidden, isNotFound, reasonOf} from '../../shared/google/errors.ts';
import type {Store, Tpus} from '../../shared/ports/ports.ts';
import type {Clock} from '../deploy/until-ready.ts';

/** Control plane without an answer for this long is gone. */
const ANSWER_S = 60;
const POLL_S = 10;
/** A TPU finishes its shard first. */
const MOST_DRAIN_S = 30 * 60;

export type Fleet = {pools: string[]; zones: string[]; seen: ReadonlySet<string>};

export type Left = {name: string; zone: string};

export type Draining = {
  cloud: Cloud;
  api: GoogleApi;
  tpus: Tpus;
  zones: string[];
  /** Ends the ticks, which would create again what is deleted directly. */
  pauseTick: () => Promise<void>;
  clock: Clock;
};

/** Pools, and every zone in which a pool, a worker or a refusal ever was. `seen`: zones that had a worker. */
export async function fleetOf({store, connection}: Cloud, zones: string[]): Promise<Fleet> {
  const [pools, workers, known] = await Promise.all([
    readAll(store, 'pools', poolRecords),
    readAll(store, 'workers', workerRecords),
    readAll(store, 'zones', zoneRecords),
  ]);
  const all = [
    ...zones,
    ...pools.flatMap(pool => pool.zones),
    ...[...workers, ...known].map(({zone}) => zone),
  ];
  return {
    pools: [...new Set([poolOf(connection.deployment), ...pools.map(({pool}) => pool)])],
    zones: [...new Set(all)].sort(),
    seen: new Set(workers.map(({zone}) => zone)),
  };
}

/** Documents of a collection; empty if the database no longer exists. */
async function readAll<T>(
  store: Store,
  collection: string,
  records: {parseAll(stored: Awaited<ReturnType<Store['query']>>, warn: (error: Error) => void): T[]},
): Promise<T[]> {
  try {
    return records.parseAll(await store.query(collection), ({message}) => say(message));
  } catch (error) {
    // The store wraps the error of Firestore.
    if (!isNotFound((error as Error).cause)) throw error;
    say(`The database is gone, so ${collection} are unknown: ${reasonOf(error)}`);
    return [];
  }
}

/** Nodes and queued resources of the deployment, in all zones at once and in each known zone. */
export async function leftIn({cloud, api, tpus}: Draining, {zones, seen}: Fleet): Promise<Left[]> {
  const {project, deployment} = cloud.connection;
  const wanted = Object.entries(labelsOf(deployment));
  const isOwn = (labels: Record<string, string> = {}) =>
    wanted.every(([key, value]) => labels[key] === value);
  const listed = await tpus.list();
  const late = listed.unreachable.find(zone => zones.includes(zone));
  if (late !== undefined)
    throw new CliError(`Failed to list the TPUs of ${late}: the zone does not answer; run it again`);
  const left = new Map<string, Left>();
  const add = ({name, zone}: Left) => left.set(`${zone}/${name}`, {name, zone});
  for (const tpu of listed.tpus) if (isOwn(tpu.labels)) add(tpu);
  for (const zone of zones) {
    const at = `tpu.googleapis.com/v2/projects/${project}/locations/${zone}`;
    const nameOf = ({name}: Json) => String(name).split('/').at(-1) ?? '';
    try {
      const nodes = await listAll(api, `${at}/nodes?pageSize=500`, 'nodes');
      for (const node of nodes)
        if (isOwn(node.labels as Record<string, string>)) add({name: nameOf(node), zone});
      for (const queued of await listAll(api, `${at}/queuedResources?pageSize=500`, 'queuedResources'))
        if (isOwn(labelsIn(queued))) add({name: nameOf(queued), zone});
    } catch (error) {
      // The project may have no access to a zone of the settings. A zone that had a worker was open.
      if (seen.has(zone) || !(isNotFound(error) || isForbidden(error))) throw error;
    }
  }
  return [...left.values()];
}

function labelsIn(queued: Json): Record<string, string> | undefined {
  const {nodeSpec = []} = (queued.tpu ?? {}) as {nodeSpec?: {node?: {labels?: Record<string, string>}}[]};
  return nodeSpec[0]?.node?.labels;
}

/** Ends every TPU of the deployment, and returns when none is left at two looks in a row. */
export async function drain(draining: Draining, fleet: Fleet): Promise<void> {
  const {tpus, pauseTick, clock} = draining;
  const drained = await scaleToZero(draining, fleet.pools);
  const finishesAlone = ({name}: Left) => drained.has(parseWorkerName(name)?.pool ?? '');
  let isDirect = false;
  let empty = 0;
  let lastLine = '';
  for (const end_ms = clock.now() + MOST_DRAIN_S * 1000; ; await clock.sleep(POLL_S)) {
    const left = await leftIn(draining, fleet);
    // A create may be under way at the first look.
    empty = left.length === 0 ? empty + 1 : 0;
    if (empty === 2) return;
    if (!isDirect && left.length > 0 && !left.some(finishesAlone)) {
      await pauseTick();
      isDirect = true;
    }
    if (isDirect) for (const {name, zone} of left) await tpus.delete(name, zone);
    const line = `${counted(left.length, 'TPU')} left: ${left.map(({name, zone}) => `${name} in ${zone}`).join(', ')}`;
    if (left.length > 0 && line !== lastLine) say(line);
    lastLine = line;
    if (clock.now() > end_ms)
      throw new CliError(
        `${line}, after ${MOST_DRAIN_S / 60} minutes; run the command again, or end their work with \`gleaner tpus delete --all\``,
      );
  }
}

/** Asks the control plane to empty every pool, and returns the pools that it empties. The TPUs of the others are deleted directly. */
async function scaleToZero({cloud, clock}: Draining, pools: string[]): Promise<ReadonlySet<string>> {
  const drained = new Set<string>();
  for (const pool of pools) {
    const message = {action: 'scale', pool, workers_per_zone: 0};
    const answer = await publish(cloud, 'control', message)
      .then(id => outcomeOf(cloud.store, id, ANSWER_S, clock))
      .catch((error: Error) => error);
    if (answer instanceof Error) {
      say(`The control plane does not answer, so all TPUs are deleted directly: ${answer.message}`);
      return new Set();
    }
    if (answer.outcome === 'applied') {
      drained.add(pool);
      say(answer.reason);
    } else
      say(
        `The control plane does not empty pool ${pool}, so its TPUs are deleted directly: ${answer.reason}`,
      );
  }
  return drained;
}
