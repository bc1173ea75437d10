/** A function of 512 MiB must manage two scenes. A very large run completes. Ticks delete TPUs while commits fail. */

import {lookAtEverything} from '../../shared/control-plane/handlers/tick.ts';
import type {Deps} from '../../shared/control-plane/state/deps.ts';
import {metadataObject, streamId, streamObject} from '../../shared/domain/names.ts';
import {NO_ORDERS, NO_STREAMS, type Run} from '../../shared/domain/run/run.ts';
import {newStream, type Stream} from '../../shared/domain/stream/stream.ts';
import {iso} from '../../shared/domain/time.ts';
import {openSqliteStore} from '../../shared/embedded/sqlite-store.ts';
import type {Document, Store, Transaction} from '../../shared/ports.ts';
import {contentOf, SceneBucket} from './bucket.ts';
import {metered, noUsage} from './meter.ts';
import {configOf, HASH, NOW, nodesOf, type Size, workersOf} from './scene.ts';

/** Measurements of ticks that run as Cloud Scheduler calls them. */
export type Ended = {
  what: string;
  ticks: number;
  longest_s: number;
  /** Processor time of the tick that took most of it: other work on the machine does not count. */
  longest_cpu_s: number;
  /** Seconds from the start of the first tick. */
  first_delete_s: number;
  last_delete_s: number;
  /** TPUs that each tick told to go. */
  deletes: number[];
  peak_heap_mb: number;
  peak_mb: number;
};

const RUN = 'run-0';
const SHARDS = 20;
const FACTS = {samples: 2000, rejected: 0, tokens: 2_000_000, shards: SHARDS};
const MOST_TICKS = 60;

const [verb, file = '', workers, streams, latency] = process.argv.slice(2);
const size: Size = {workers: Number(workers), streams: Number(streams)};
const store = openSqliteStore(file);
if (verb === 'build') await fillEnding(store);
else {
  const isComplete = verb === 'complete';
  const what = isComplete ? `a run of ${size.streams} streams completes` : '1 % of commits fail';
  console.log(JSON.stringify({what, ...(await measure(store, isComplete))}));
}
await store.close();

/** Every TPU is idle. All streams of the run are complete; for the scene of failing commits, the run is paused. */
async function fillEnding(store: Store): Promise<void> {
  const put = async (documents: [string, object][]) => {
    await store.transaction(async tx => {
      for (const [path, data] of documents) tx.set(path, data as Document);
    });
  };
  await put([[`runs/${RUN}`, aRun()]]);
  const idle = {phase: 'idle', work: null, epoch: null, claimed_at: null, costs: {}, charged_to: RUN};
  await put(workersOf(size).map(worker => [`workers/${worker.name}`, {...worker, ...idle}]));
  for (let first = 0; first < size.streams; first += 1000)
    await put(
      Array.from({length: Math.min(1000, size.streams - first)}, (_, index) => {
        const stream = aCompleteStream(first + index);
        return [`runs/${RUN}/streams/${stream.stream}`, stream];
      }),
    );
}

function aCompleteStream(index: number): Stream {
  const {name: object, generation, size_bytes, crc32c} = contentOf(streamObject(RUN, streamId(index)));
  const content = {object, generation, size_bytes, crc32c};
  return {
    ...newStream(RUN, index, content, {bucket: 'bench', model: 'm', now: NOW - 86_400_000}),
    status: 'completed',
    finished: true,
    epoch: 1,
    last_processed_sample_idx: FACTS.samples - 1,
    total_samples_processed: FACTS.samples,
    total_shards: SHARDS,
    total_tokens: FACTS.tokens,
    total_bytes: SHARDS * 1e9,
  };
}

function aRun(): Run {
  return {
    ...{
      run: RUN,
      status: size.streams > 1 ? 'active' : 'paused',
      reason: null,
      spec: {model: 'm'},
      spec_hash: HASH,
    },
    ...{pool: 'tpu', priority: 0, budget_usd: 1e6, spent_usd: 0, cost_usd: 0, ...NO_ORDERS, affinity: 'any'},
    ...{stream_offset: 0, ...NO_STREAMS, created_at: iso(NOW - 86_400_000), updated_at: iso(NOW - 60_000)},
  };
}

/** The metadata.json of a stream of 24 layers at two sites and 20 shards. */
function metadataTexts(): (name: string) => string | undefined {
  const stats = Object.fromEntries(
    Array.from({length: 48}, (_, index) => [
      `${index % 2 ? 'resid_post' : 'mlp_out'}.${index >> 1}`,
      {mean: 0.0123456, norm: 31.4159, max_abs: 271.828, non_finite: 0},
    ]),
  );
  const files = Object.fromEntries(Array.from({length: 8}, (_, index) => [`file-${index}.json`, HASH]));
  const shards = Array.from({length: SHARDS}, (_, index) => ({
    filename: `shard_${index}`,
    sha256: HASH,
    stats: {},
  }));
  const text = JSON.stringify({
    ...{schema: 'gleaner/1', run: RUN, worker_id: -1, spec_hash: HASH, total_samples: FACTS.samples},
    ...{total_rejected: 0, total_tokens: FACTS.tokens, total_shards: SHARDS, total_truncated: 0},
    ...{total_rows: FACTS.tokens, stats, versions: {jax: '0.10.2'}, code: HASH, shards},
    model: {
      name: 'm',
      revision: HASH,
      fingerprint: HASH,
      weights_sha256: HASH,
      tokenizer_sha256: HASH,
      files,
    },
  });
  return name => {
    const stream = /tpu_(\d+)\/metadata\.json$/.exec(name)?.[1];
    if (stream === undefined || name !== metadataObject(RUN, streamId(Number(stream)))) return undefined;
    return text.replace('"worker_id":-1', `"worker_id":${stream}`);
  };
}

/** Ticks until the run is complete, or twice while commits fail. Time is the machine's, and a minute goes by between two ticks. */
async function measure(opened: Store, isComplete: boolean): Promise<Omit<Ended, 'what'>> {
  const latency_ms = Number(latency);
  const names = Array.from({length: size.streams}, (_, index) => streamObject(RUN, streamId(index)));
  const bucket = new SceneBucket(names.sort(), latency_ms, metadataTexts());
  const documentsIn = (path: string) => (path.endsWith('/streams') ? size.streams : size.workers);
  const metering = metered(opened, noUsage(), {latency_ms, documentsIn});
  const began = performance.now();
  const seconds = () => (performance.now() - began) / 1000;
  const told = new Map<string, number>();
  let waited_ms = 0;
  let peak_heap_mb = 0;
  const sample = () => {
    peak_heap_mb = Math.max(peak_heap_mb, process.memoryUsage().heapUsed / 1e6);
  };
  bucket.onRead = sample;
  const deps: Deps = {
    store: isComplete ? metering : withFailures(metering),
    objects: bucket,
    bus: {
      publish: async (_, {action, worker}) => {
        if (action === 'delete' && !told.has(String(worker))) told.set(String(worker), seconds());
        return '1';
      },
    },
    tpus: {
      list: async () => ({tpus: nodesOf(size).filter(({name}) => !told.has(name)), unreachable: []}),
      get: async name => nodesOf(size).find(node => node.name === name && !told.has(name)),
      create: async () => 'started',
      delete: async () => 'started',
    },
    ticker: {on: async () => {}, off: async () => {}},
    ping: async () => {},
    now: () => Math.round(NOW + waited_ms + performance.now() - began),
    log: () => {},
    config: configOf(size),
    taken: new Map(),
    specs: new Map(),
    startupScript: async () => '',
  };
  const deletes: number[] = [];
  let [longest_s, longest_cpu_s] = [0, 0];
  const isOver = async () =>
    isComplete ? (await opened.get(`runs/${RUN}`))?.status === 'completed' : deletes.length === 2;
  while (!(await isOver())) {
    if (deletes.length === MOST_TICKS) throw new Error(`The run is not complete after ${MOST_TICKS} ticks`);
    const [start, cpu, before] = [seconds(), process.cpuUsage(), told.size];
    await lookAtEverything(deps).catch((error: Error) => {
      if (isComplete) throw error;
    });
    sample();
    longest_s = Math.max(longest_s, seconds() - start);
    const {user, system} = process.cpuUsage(cpu);
    longest_cpu_s = Math.max(longest_cpu_s, (user + system) / 1e6);
    deletes.push(told.size - before);
    waited_ms += Math.max(0, 60_000 - 1000 * (seconds() - start));
  }
  if (isComplete && bucket.result?.streams !== size.streams)
    throw new Error(`The result counts ${bucket.result?.streams} of ${size.streams} streams`);
  const times = [...told.values()];
  return {
    ticks: deletes.length,
    longest_s,
    longest_cpu_s,
    first_delete_s: Math.min(...times),
    last_delete_s: Math.max(...times),
    deletes,
    peak_heap_mb,
    peak_mb: process.resourceUsage().maxRSS / 1024,
  };
}

/** One of a hundred transactions fails; half of these were written all the same. */
function withFailures(store: Store): Store {
  let state = 1;
  const random = () => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fff_ffff;
    return state / 0x7fff_ffff;
  };
  return {
    ...store,
    transaction: async <T>(work: (tx: Transaction) => Promise<T>): Promise<T> => {
      const luck = random();
      if (luck < 0.005) throw new Error('the transaction was not reached');
      const done = await store.transaction(work);
      if (luck < 0.01) throw new Error('the answer of the transaction was lost');
      return done;
    },
  };
}
