/**
 * Documents of a control plane at work: every worker has a stream of one of four runs, half of the other streams are complete, and there
 * are as many gone workers as living ones.
 */

import {slotsOf} from '../../shared/domain/fleet/slots.ts';
import {shardObject, streamId, streamObject, workerName} from '../../shared/domain/names.ts';
import {newStream, type Stream} from '../../shared/domain/records/stream.ts';
import type {Worker} from '../../shared/domain/records/worker.ts';
import {iso} from '../../shared/domain/time.ts';
import {newZone} from '../../shared/domain/zone/placement.ts';
import type {Document, Store, Tpu} from '../../shared/ports/ports.ts';
import {aConfig, aRun, aTpu, aWorker, ENVIRONMENT, shardMetadataOf} from '../../test/world/builders.ts';
import {contentOf} from './bucket.ts';

export const NOW = Date.parse('2026-11-21T12:00:00.000Z');
export const RUNS = 4;
const WORKERS_PER_ZONE = 1000;
const BATCH = 400;
export const SHARDS_STORED = 20;
const {GLEANER_BUNDLE: BUNDLE} = ENVIRONMENT;

/** Hash of the secret of every host. */
export const SECRET_SHA256 = 'd'.repeat(64);

/** Living workers, and streams. */
export type Size = {workers: number; streams: number};

export function configOf({workers}: Size) {
  const zones = Math.ceil(workers / WORKERS_PER_ZONE);
  return aConfig({
    GLEANER_ZONES: Array.from({length: zones}, (_, zone) => `us-central${zone + 1}-a`).join(),
    GLEANER_WORKERS_PER_ZONE: String(Math.ceil(workers / zones)),
    GLEANER_MAX_WORKERS: String(zones * Math.ceil(workers / zones)),
  });
}

export function runName(run: number): string {
  return `run-${run}`;
}

export function streamNames({streams}: Size): string[] {
  const each = streams / RUNS;
  return Array.from({length: streams}, (_, index) =>
    streamObject(runName(Math.floor(index / each)), streamId(index % each)),
  ).sort();
}

/** A stream of SHARDS_STORED shards. */
export function storedStream(run: string, place: number, changes: Partial<Stream>): Stream {
  return {
    ...newStreamOf(run, place),
    last_processed_sample_idx: SHARDS_STORED * 100 - 1,
    total_samples_processed: SHARDS_STORED * 100,
    total_shards: SHARDS_STORED,
    total_tokens: SHARDS_STORED * 100_000,
    total_bytes: SHARDS_STORED * 1e9,
    ...changes,
  };
}

function newStreamOf(run: string, place: number): Stream {
  const {name, generation, size_bytes, crc32c} = contentOf(streamObject(run, streamId(place)));
  const content = {object: name, generation, size_bytes, crc32c};
  return newStream(run, place, content, {bucket: 'bench', model: 'm', now: NOW - 86_400_000});
}

/** A stream that a worker has; or one that is complete, pending or failed. */
function streamOf(size: Size, slots: readonly {name: string}[], index: number): Stream {
  const each = size.streams / RUNS;
  const [run, place] = [runName(Math.floor(index / each)), index % each];
  const worker = workerOn(size, index);
  if (worker !== undefined) {
    const lease = {worker: slots[worker]?.name ?? '', incarnation: 2, epoch: 2};
    const updated_at = iso(NOW - (index % 1800) * 1000);
    return storedStream(run, place, {status: 'in_progress', epoch: 2, lease, updated_at});
  }
  const stream = newStreamOf(run, place);
  if (place % 1000 === 999) return {...stream, status: 'failed', last_error: 'record 17 is not UTF-8'};
  if (place % 2 === 0) return storedStream(run, place, {status: 'completed', finished: true, epoch: 1});
  return stream;
}

/** The worker that has the stream: the first streams of each run are leased. */
function workerOn({workers, streams}: Size, index: number): number | undefined {
  const [run, place] = [Math.floor(index / (streams / RUNS)), index % (streams / RUNS)];
  return place < workers / RUNS ? run * (workers / RUNS) + place : undefined;
}

/** The living workers, or the first `most` of them. */
export function workersOf(size: Size, most = size.workers): Worker[] {
  const each = size.workers / RUNS;
  const slots = slotsOf(configOf(size).pool).slice(0, most);
  return slots.map((slot, index) => {
    const run = runName(Math.floor(index / each));
    return aWorker({
      name: slot.name,
      phase: 'working',
      phase_since_at: iso(NOW - 3_600_000),
      ready_at: iso(NOW - 3_700_000),
      usd_per_hour: 0.36,
      costs: {[run]: 0.35},
      costs_at: iso(NOW - 20_000),
      charged_to: run,
      born_at: iso(NOW - 3_800_000),
      hello_at: iso(NOW - 3_600_000),
      host_secrets: {0: SECRET_SHA256},
      bundle: BUNDLE,
      provider_state: 'READY',
      health: 'HEALTHY',
      heartbeat_at: iso(NOW - (index % 20) * 1000),
      activity: 'running',
      work: `${run}/${streamId(index % each)}`,
      epoch: 2,
      claimed_at: iso(NOW - (index % 20) * 1000),
      samples_done: 2000,
      tokens_done: 2_000_000,
      shards_done: SHARDS_STORED,
      tokens_per_s: 9000,
      progress_at: iso(NOW - (index % 60) * 1000),
      updated_at: iso(NOW - 3_600_000),
    });
  });
}

/** Workers whose slots a larger pool once had. */
function goneWorkersOf(size: Size): Worker[] {
  const {pool} = configOf(size);
  return slotsOf(pool).map(({zone, slot}) =>
    aWorker({
      name: workerName({pool: 'tpu', zone, slot: slot + pool.workers_per_zone}),
      phase_since_at: iso(NOW - 43_200_000),
      incarnation: 7,
      hello_at: iso(NOW - 50_000_000),
      host_secrets: {},
      bundle: BUNDLE,
      last_death: 'not needed any more',
    }),
  );
}

export function nodesOf(size: Size): Tpu[] {
  return slotsOf(configOf(size).pool).map(({name, zone}) =>
    aTpu({name, zone, created_at: iso(NOW - 3_800_000)}),
  );
}

/** One by one: a function has no room for all of them. */
export function* documentsOf(size: Size): Generator<[path: string, data: object]> {
  for (let run = 0; run < RUNS; run++)
    yield [`runs/${runName(run)}`, aRun({run: runName(run), budget_usd: 1e6, bundle: BUNDLE})];
  const {pool} = configOf(size);
  for (const zone of pool.zones) yield [`zones/${zone}`, newZone(zone, NOW - 86_400_000)];
  for (const worker of [...workersOf(size), ...goneWorkersOf(size)]) yield [`workers/${worker.name}`, worker];
  const slots = slotsOf(pool);
  for (let index = 0; index < size.streams; index++) {
    const stream = streamOf(size, slots, index);
    yield [`runs/${stream.run}/streams/${stream.stream}`, stream];
  }
}

export async function putAll(store: Store, documents: Iterable<[path: string, data: object]>): Promise<void> {
  let batch: [path: string, data: object][] = [];
  const flush = () =>
    store.transaction(async tx => {
      for (const [path, data] of batch) tx.set(path, data as Document);
    });
  for (const each of documents) {
    batch.push(each);
    if (batch.length < BATCH) continue;
    await flush();
    batch = [];
  }
  await flush();
}

/** The shard behind the stored shards of a leased stream. */
export function nextShard(run: string, stream: string) {
  const shard = SHARDS_STORED + 1;
  return {
    name: shardObject(run, stream, shard, 'safetensors'),
    metadata: shardMetadataOf({
      run,
      stream,
      shard: String(shard),
      first_sample: String((shard - 1) * 100),
      last_sample: String(shard * 100 - 1),
      samples: '100',
      rejected: '0',
      tokens: '100000',
      stream_crc32c: contentOf('').crc32c,
      epoch: '2',
      final: 'false',
    }),
  };
}
