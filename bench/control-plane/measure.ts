/** One size in a process of its own: `build` fills a store file, `measure` does one thing on it and prints what that took. */
import {copyFileSync} from 'node:fs';
import {lookAtEverything} from '../../shared/control-plane/handlers/tick.ts';
import {answerWorker} from '../../shared/control-plane/handlers/worker-request.ts';
import type {Deps} from '../../shared/control-plane/state/deps.ts';
import {advanceStream} from '../../shared/control-plane/streams/advance-checkpoint.ts';
import {takeObject} from '../../shared/control-plane/streams/register-stream.ts';
import {openSqliteStore} from '../../shared/embedded/sqlite-store.ts';
import type {Store, Tpu} from '../../shared/ports.ts';
import {type BucketUsage, SceneBucket} from './bucket.ts';
import {metered, noUsage, type Usage} from './meter.ts';
import {configOf, fill, NOW, nextShard, nodesOf, type Size, streamNames, workersOf} from './scene.ts';

export type Measured = {
  what: string;
  seconds: number;
  usage: Usage;
  bucket: BucketUsage;
  published: number;
  /** Of the whole process, also before. */
  peak_mb: number;
  /** How many times it was done; everything but the peak is for one. */
  times: number;
};

/** Only as many are done as the smallest scene has. */
const TIMES = 20;
const SHARDS_BEHIND = 5000;

const [verb, file = '', workers, streams, latency, what = ''] = process.argv.slice(2);
const size: Size = {workers: Number(workers), streams: Number(streams)};
if (verb === 'build') {
  const store = openSqliteStore(file);
  await fill(store, size);
  await store.close();
} else {
  const copy = `${file}.copy`;
  copyFileSync(file, copy);
  const store = openSqliteStore(copy);
  console.log(JSON.stringify(await measure(store, what, Number(latency))));
  await store.close();
}

async function measure(opened: Store, name: string, latency_ms: number): Promise<Measured> {
  const usage = noUsage();
  const bucket = new SceneBucket(streamNames(size), latency_ms);
  const documentsIn = (path: string) => (path.endsWith('/streams') ? size.streams / 4 : size.workers);
  let nodes = nodesOf(size);
  let now = NOW;
  let published = 0;
  const deps: Deps = {
    store: metered(opened, usage, {latency_ms, documentsIn}),
    objects: bucket,
    bus: {publish: async () => String(++published)},
    tpus: {
      list: async () => ({tpus: nodes, unreachable: []}),
      get: async name => nodes.find(node => node.name === name),
      create: async () => 'started',
      delete: async () => 'started',
    },
    ticker: {on: async () => {}, off: async () => {}},
    ping: async () => {},
    now: () => now,
    log: (severity, message) => severity === 'ERROR' && console.error(message),
    config: configOf(size),
    taken: new Map(),
    specs: new Map(),
    startupScript: async () => '',
  };
  const later = (seconds: number) => {
    now += seconds * 1000;
  };
  const alive = async () => {
    // Everybody has just been heard, as everybody is at any moment of a run.
    const heard_at = new Date(now - 5000).toISOString();
    for (let first = 0; first < size.workers; first += 400)
      await opened.transaction(async tx => {
        for (const worker of workersOf(size).slice(first, first + 400))
          tx.set(`workers/${worker.name}`, {
            ...worker,
            heartbeat_at: heard_at,
            claimed_at: heard_at,
            progress_at: heard_at,
          });
      });
  };
  const reset = () => {
    Object.assign(usage, noUsage());
    Object.assign(bucket.usage, {class_a: 0, class_b: 0});
    published = 0;
  };
  const first = workersOf(size).slice(0, TIMES);
  const of = (index: number) => {
    const worker = first[index];
    const [run = '', stream = ''] = worker?.work?.split('/') ?? [];
    return {worker: worker?.name ?? '', run, stream};
  };
  const change = (share: number, changed: (tpu: Tpu) => Tpu) => {
    nodes = nodes.map((tpu, index) => (index % Math.round(1 / share) === 0 ? changed(tpu) : tpu));
  };
  let times = 1;
  const each = async (work: (index: number) => Promise<unknown>) => {
    times = TIMES;
    for (let index = 0; index < TIMES; index++) await work(index);
  };

  const scenes: Record<string, () => Promise<() => Promise<unknown>>> = {
    'tick of a new instance': async () => () => lookAtEverything(deps),
    'tick, nothing changed': async () => {
      await lookAtEverything(deps);
      later(60);
      await alive();
      return () => lookAtEverything(deps);
    },
    'tick, a tenth preempted': async () => {
      await lookAtEverything(deps);
      later(60);
      await alive();
      change(0.1, tpu => ({...tpu, state: 'PREEMPTED'}));
      return () => lookAtEverything(deps);
    },
    'tick, all drained': async () => {
      await lookAtEverything(deps);
      for (let run = 0; run < 4; run++)
        await opened.transaction(async tx => {
          tx.set(`runs/run-${run}`, {...(await tx.get(`runs/run-${run}`)), status: 'paused'});
        });
      later(60);
      await alive();
      return () => lookAtEverything(deps);
    },
    'tick, all gone': async () => {
      for (let run = 0; run < 4; run++)
        await opened.transaction(async tx => {
          tx.set(`runs/run-${run}`, {...(await tx.get(`runs/run-${run}`)), status: 'cancelled'});
        });
      for (let first = 0; first < size.workers; first += 400)
        await opened.transaction(async tx => {
          for (const worker of workersOf(size).slice(first, first + 400))
            tx.set(`workers/${worker.name}`, {...worker, phase: 'deleting', work: null, epoch: null});
        });
      nodes = [];
      return () => lookAtEverything(deps);
    },
    heartbeat: async () => () =>
      each(index => {
        const {worker, run, stream} = of(index);
        const progress = {
          samples_done: 2100,
          samples_total: 9000,
          tokens_done: 2_100_000,
          shards_done: 21,
          tokens_per_s: 9000,
        };
        const lease = {run, stream, epoch: 2};
        const sender = {worker, incarnation: 3, host: 0};
        return answerWorker(deps, {action: 'heartbeat', ...sender, phase: 'running', lease, progress});
      }),
    shard: async () => {
      for (let index = 0; index < TIMES; index++) {
        const {run, stream} = of(index);
        const {name, metadata} = nextShard(run, stream);
        bucket.put(name, 1e9, metadata);
      }
      return () =>
        each(index => {
          const {run, stream} = of(index);
          return takeObject(deps, nextShard(run, stream).name);
        });
    },
    lease: async () => {
      await opened.transaction(async tx => {
        for (const worker of workersOf(size).slice(0, TIMES))
          tx.set(`workers/${worker.name}`, {...worker, phase: 'idle', work: null, epoch: null});
      });
      return () =>
        each(index =>
          answerWorker(deps, {action: 'lease', worker: of(index).worker, incarnation: 3, host: 0}),
        );
    },
    release: async () => () =>
      each(index => {
        const {worker, run, stream} = of(index);
        const lease = {run, stream, epoch: 2};
        const sender = {worker, incarnation: 3, host: 0};
        return answerWorker(deps, {action: 'release', ...sender, lease, outcome: 'drained', failure: null});
      }),
    'stream dropped': async () => () =>
      each(index => takeObject(deps, `datasets/run-0/stream_${9_000_000 + index}.jsonl`)),
    [`${SHARDS_BEHIND} shards behind`]: async () => {
      const {run, stream} = of(0);
      for (let further = 0; further < SHARDS_BEHIND; further++) {
        const {name, metadata} = nextShard(run, stream, further);
        bucket.put(name, 1e9, metadata);
      }
      return () => advanceStream(deps, run, stream);
    },
  };
  const work = await scenes[name]?.();
  if (!work) throw new Error(`There is no scene "${name}": ${Object.keys(scenes).join(', ')}`);
  reset();
  const start = performance.now();
  await work();
  const seconds = (performance.now() - start) / 1000 / times;
  const {most_writes, most_bytes, ...counts} = usage;
  const one = <T extends object>(of: T) =>
    Object.fromEntries(Object.entries(of).map(([key, value]) => [key, Number(value) / times])) as T;
  return {
    what: name,
    seconds,
    usage: {...one(counts), most_writes, most_bytes},
    bucket: one(bucket.usage),
    published: published / times,
    peak_mb: process.resourceUsage().maxRSS / 1024,
    times,
  };
}
