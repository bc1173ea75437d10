/** Scenes of many runs, pools, hosts and jobs, at 100 ms for each call of a port. */

import {watchWrites, withTransactions} from '../../shared/control-plane/documents/watched-store.ts';
import {handleControlMessage, handleExecMessage} from '../../shared/control-plane/events/operator-message.ts';
import {tick} from '../../shared/control-plane/tick/tick.ts';
import {storePing} from '../../shared/control-plane/workers/service-proofs.ts';
import {streamId, workerName} from '../../shared/domain/names.ts';
import {iso} from '../../shared/domain/time.ts';
import {newZone} from '../../shared/domain/zone/placement.ts';
import {openSqliteStore} from '../../shared/embedded/sqlite-store.ts';
import type {CollectionPath, Document, Store} from '../../shared/ports/ports.ts';
import {aConfig, aRun, aTpu, aWorker, ENVIRONMENT} from '../../test/world/builders.ts';
import {messageData} from '../../test/world/bus.ts';
import {depsOf} from '../../test/world/deps.ts';
import {aJob} from '../../test/world/scenes/jobs.ts';
import {SceneBucket} from './bucket.ts';
import {LatencyClock} from './latency-clock.ts';
import {metered, noUsage} from './meter.ts';
import {NOW, putAll, SECRET_SHA256, storedStream} from './scene.ts';
import {tpusOf} from './world.ts';

const LATENCY_MS = 100;
const ZONE = 'us-central1-a';
const MOST_WORKERS = 5000;

type Scale = {pools: number; runs: number; streams: number; workers: number};
export type Figures = {
  scene: string;
  seconds: number;
  reads: number;
  writes: number;
  calls: number;
  note: string;
};

const poolName = (index: number) => (index === 0 ? 'tpu' : `pool-${index}`);

/** Runs and workers are spread evenly over the pools. Each worker has a stream, and the other streams are pending. */
class ManyRuns {
  readonly #scale: Scale;
  readonly #clock = new LatencyClock(NOW);
  readonly #usage = noUsage();
  readonly store = openSqliteStore(':memory:', () => 0);
  readonly published: {topic: string; message: Document}[] = [];
  /** Writes by collection and second. */
  readonly #perSecond = new Map<string, number>();
  #calls = 0;
  readonly deps;

  constructor(scale: Scale) {
    this.#scale = scale;
    const sleep = (ms: number) => {
      this.#calls += 1;
      return this.#clock.sleep(ms);
    };
    const documentsIn = () => scale.streams / scale.runs;
    const store = metered(this.#watched(), this.#usage, {latency_ms: LATENCY_MS, documentsIn, sleep});
    const nodes = () => this.workers().map(({name, zone}) => aTpu({name, zone, state: 'READY'}));
    this.deps = depsOf({
      store,
      objects: new SceneBucket([]).counted(0),
      bus: {
        publish: async (topic, message) => {
          await sleep(LATENCY_MS);
          return String(this.published.push({topic, message}));
        },
      },
      tpus: {
        ...tpusOf(nodes),
        list: async () => {
          await sleep(LATENCY_MS);
          return {tpus: nodes(), unreachable: []};
        },
      },
      ping: () => storePing(this.deps),
      now: () => Math.round(this.#clock.now),
      config: aConfig({
        GLEANER_ZONES: ZONE,
        GLEANER_WORKERS_PER_ZONE: '1000',
        GLEANER_MAX_WORKERS: String(MOST_WORKERS),
      }),
    });
  }

  #watched(): Store {
    const note = (path: string) => {
      const [collection, ...below] = path.split('/');
      const kind = [collection, ...below.filter((_, index) => index % 2 === 1)].join('/');
      const key = `${kind} ${Math.floor(this.#clock.now / 1000)}`;
      this.#perSecond.set(key, (this.#perSecond.get(key) ?? 0) + 1);
    };
    const {store} = this;
    return withTransactions(store, work => store.transaction(tx => work(watchWrites(tx, note))));
  }

  workers() {
    const {pools, runs, workers} = this.#scale;
    return Array.from({length: workers}, (_, index) => {
      const pool = poolName(index % pools);
      const run = `run-${index % runs}`;
      const heard_at = iso(this.#clock.now - 5000);
      const slot = Math.floor(index / pools);
      return aWorker({
        ...{name: workerName({pool, zone: ZONE, slot}), pool, zone: ZONE, slot},
        ...{
          phase: 'working',
          work: `${run}/${streamId(Math.floor(index / runs))}`,
          host_secrets: {0: SECRET_SHA256},
        },
        ...{epoch: 1, usd_per_hour: 0.25, costs: {}, charged_to: run, bundle: ENVIRONMENT.GLEANER_BUNDLE},
        ...{heartbeat_at: heard_at, claimed_at: heard_at, progress_at: heard_at, agent_at: heard_at},
        hello_at: heard_at,
      });
    });
  }

  fill(): Promise<void> {
    return putAll(this.store, this.#documents());
  }

  *#documents(): Generator<[path: string, data: object]> {
    const {pools, runs, streams} = this.#scale;
    const workers = this.workers();
    const size = {zones: [ZONE], workers_per_zone: Math.ceil(workers.length / pools) || 1};
    for (let index = 0; index < pools; index++) {
      const pool = poolName(index);
      yield [`pools/${pool}`, {...this.deps.config.pool, pool, ...size, version: 1}];
      const zone = index === 0 ? ZONE : `${pool}.${ZONE}`;
      yield [`zones/${zone}`, newZone(ZONE, NOW, index === 0 ? null : pool)];
    }
    for (const worker of workers) yield [`workers/${worker.name}`, worker];
    const holders = new Map(workers.map(({work, name}) => [work, name]));
    for (let index = 0; index < runs; index++) {
      const run = `run-${index}`;
      yield [`runs/${run}`, aRun({run, pool: poolName(index % pools)})];
      for (let place = 0; place < Math.floor(streams / runs); place++) {
        const worker = holders.get(`${run}/${streamId(place)}`);
        const lease = worker ? {worker, incarnation: 2, epoch: 1} : null;
        const status = lease ? 'in_progress' : 'pending';
        const stream = storedStream(run, place, {status, lease, epoch: 1});
        yield [`runs/${run}/streams/${stream.stream}`, stream];
      }
    }
  }

  /** A minute goes by in which every worker sends a heartbeat. */
  async minute(): Promise<void> {
    this.#clock.now += 60_000;
    const heard_at = iso(this.#clock.now - 5000);
    await this.change('workers', {heartbeat_at: heard_at, claimed_at: heard_at, progress_at: heard_at});
  }

  /** Changes every document of the collection without counting that. */
  async change(collection: CollectionPath, changed: object): Promise<void> {
    const stored = await this.store.query(collection);
    await putAll(
      this.store,
      stored.map(({path, data}) => [path, {...data, ...changed}]),
    );
  }

  tick(): Promise<void> {
    return tick(this.deps);
  }

  /** Ticks until no count is under way. */
  async settle(): Promise<void> {
    for (let minute = 0; minute < 7; minute++) {
      await this.minute();
      await this.#clock.seconds(() => this.tick());
    }
    await this.minute();
  }

  async measure(scene: string, work: () => Promise<unknown>): Promise<Figures> {
    Object.assign(this.#usage, noUsage());
    this.#perSecond.clear();
    this.#calls = 0;
    const seconds = await this.#clock.seconds(work);
    const {reads, writes, deletes} = this.#usage;
    return {scene, seconds, reads, writes: writes + deletes, calls: this.#calls, note: ''};
  }

  pushed(id: string, message: object): object {
    return messageData(id, JSON.stringify(message), iso(this.#clock.now));
  }

  /** The most writes of a collection in a second. */
  peak(kind: string): number {
    const counts = [...this.#perSecond]
      .filter(([key]) => key.startsWith(`${kind} `))
      .map(([, count]) => count);
    return Math.max(0, ...counts);
  }
}

async function quietTick(): Promise<Figures> {
  const world = new ManyRuns({pools: 50, runs: 2000, streams: 100_000, workers: 100});
  await world.fill();
  await world.settle();
  return world.measure('quiet tick: 2,000 open runs, 50 pools, 100,000 streams, 100 TPUs', () =>
    world.tick(),
  );
}

async function firstTick(): Promise<Figures> {
  const world = new ManyRuns({pools: 50, runs: 1000, streams: 10_000, workers: 0});
  await world.fill();
  const pools = () =>
    new Set(
      world.published
        .filter(({topic}) => topic === 'tpu')
        .map(({message}) => String(message.worker).split('-us')[0]),
    );
  const figures = await world.measure('first tick: 1,000 new runs, 50 pools, no TPU', () => world.tick());
  return {...figures, note: `${pools().size} of 50 pools request a node`};
}

async function command(): Promise<Figures[]> {
  const world = new ManyRuns({pools: 5, runs: 5, streams: 5000, workers: 5000});
  await world.fill();
  await world.settle();
  const message = {exec: 'all-hosts', target: 'all', argv: ['uptime'], timeout_s: 600};
  const started = await world.measure('a command on 5,000 hosts begins', () =>
    handleExecMessage(world.deps, world.pushed('7', message)),
  );
  const note = `at most ${world.peak('execs/hosts')} writes of hosts in a second`;
  const during = await world.measure('a tick beside it, without its 5,000 TPUs', () => world.tick());
  return [
    {...started, note},
    {...during, reads: during.reads - 5000},
  ];
}

function* endedJobs(count: number): Generator<[path: string, data: object]> {
  for (let index = 0; index < count; index++) {
    const job = `job-${String(index).padStart(6, '0')}`;
    const completed_at = iso(NOW - 86_400_000 + index);
    yield [`jobs/${job}`, aJob({job, status: 'completed', completed_at})];
  }
}

async function clear(): Promise<Figures> {
  const world = new ManyRuns({pools: 1, runs: 1, streams: 1, workers: 0});
  await putAll(world.store, endedJobs(100_000));
  let messages = 0;
  const figures = await world.measure('clear of 100,000 jobs, with before_at', async () => {
    while ((await world.store.count('jobs')) > 0) {
      messages += 1;
      const message = {action: 'clear', before_at: iso(NOW)};
      await handleControlMessage(world.deps, world.pushed(String(messages), message));
    }
  });
  return {...figures, note: `${messages} messages`};
}

async function massPause(): Promise<Figures> {
  const world = new ManyRuns({pools: 5, runs: 5, streams: 5000, workers: 5000});
  await world.fill();
  await world.settle();
  await world.change('runs', {status: 'paused', updated_at: iso(world.deps.now())});
  const figures = await world.measure('the tick after a pause of 5 runs with 5,000 TPUs', () => world.tick());
  return {...figures, note: `at most ${world.peak('workers')} writes of workers in a second`};
}

export const MANY_SCENES: Record<string, () => Promise<Figures | Figures[]>> = {
  quietTick,
  firstTick,
  command,
  clear,
  massPause,
};
