/** Scenes of events: what workers, the bucket and operators send. */

import type {Deps} from '../../shared/control-plane/deps.ts';
import {PENDING} from '../../shared/control-plane/documents/documents.ts';
import {pagesOf} from '../../shared/control-plane/documents/pages.ts';
import {handleObjectEvent} from '../../shared/control-plane/events/object-event.ts';
import {answerWorker} from '../../shared/control-plane/worker-api/answer-worker.ts';
import {paths} from '../../shared/domain/names.ts';
import type {Stored} from '../../shared/ports/ports.ts';
import {dropStreams} from './burst.ts';
import {addTo, documentsOf, noUsage, type Usage} from './meter.ts';
import {nextShard, RUNS, runName, SECRET_SHA256, workersOf} from './scene.ts';
import type {Scene, Work} from './scene-work.ts';
import {TICK_SCENES} from './tick-scenes.ts';
import type {World} from './world.ts';

/** No scene has fewer workers in a run. */
const TIMES = 20;
const ASKERS = 100;
const DROPS = 1000;
const DROPPED_WITHIN_S = 60;

type Sender = {worker: string; incarnation: number; host: number};
type Lease = {run: string; stream: string; epoch: number};

/** The first workers, and the streams that they have. */
function senders({size}: World, count: number): {sender: Sender; lease: Lease}[] {
  return workersOf(size, count).map(({name, work}) => {
    const [run = '', stream = ''] = work?.split('/') ?? [];
    return {sender: {worker: name, incarnation: 2, host: 0}, lease: {run, stream, epoch: 2}};
  });
}

const AGENT = {account: 'worker', secret_sha256: SECRET_SHA256} as const;

/** Sends one event for each of the first workers. */
function each(world: World, send: (of: {sender: Sender; lease: Lease}, index: number) => unknown): Work {
  const all = senders(world, TIMES);
  return {
    times: TIMES,
    run: async () => {
      for (const [index, of] of all.entries()) await send(of, index);
    },
  };
}

function putShard({bucket}: World, {run, stream}: Lease): string {
  const {name, metadata} = nextShard(run, stream);
  bucket.put(name, '', metadata, {size_bytes: 1e9});
  return name;
}

/** The first workers have completed their streams. */
async function completeStreams(world: World, count: number): Promise<void> {
  for (const worker of workersOf(world.size, count)) {
    const [run, stream] = worker.work?.split('/') ?? [];
    const path = `runs/${run}/streams/${stream}`;
    const completed = {...(await world.store.get(path)), status: 'completed', finished: true, lease: null};
    const idle = {...worker, phase: 'idle', work: null, epoch: null, claimed_at: null};
    await world.change([
      [path, completed],
      [`workers/${worker.name}`, idle],
    ]);
  }
}

/** Completes every pending stream, except the last ones of the last run, and runs a tick. */
async function keepPending(world: World, count: number): Promise<void> {
  let last: Stored[] = [];
  for (let run = 0; run < RUNS; run++)
    for await (const page of pagesOf(world.store, paths.streams(runName(run)), {where: [PENDING]})) {
      const all = [...last, ...page];
      last = all.slice(-count);
      const over = all.slice(0, -count);
      await world.change(over.map(({path, data}) => [path, {...data, status: 'completed', finished: true}]));
    }
  await world.tick();
}

/** Asks for work. Returns the action of the answer, which may be `work` or `wait`. */
async function askForWork(deps: Deps, sender: Sender): Promise<'work' | 'wait'> {
  const {body} = await answerWorker(deps, AGENT, {action: 'lease', loaded: null, ...sender});
  if ('action' in body && (body.action === 'work' || body.action === 'wait')) return body.action;
  throw new Error(`Failed to ask for work as ${sender.worker}: ${JSON.stringify(body)}`);
}

/** The first workers send their requests at the same time. Each request has a count of its own. */
function askAtOnce(world: World): Work {
  const requests = senders(world, ASKERS).map(({sender}) => ({sender, usage: noUsage()}));
  let granted = 0;
  const ask = async ({sender, usage}: {sender: Sender; usage: Usage}) => {
    if ((await askForWork(world.countedBy(usage), sender)) === 'work') granted += 1;
    addTo(world.usage, usage);
  };
  return {
    times: ASKERS,
    run: () => Promise.all(requests.map(ask)),
    facts: () => ({
      worst: Math.max(...requests.map(({usage}) => documentsOf(usage))),
      note: `${granted} of ${ASKERS} requests get a stream`,
    }),
  };
}

/** Every scene by its name. */
export const SCENES: Record<string, Scene> = {
  ...TICK_SCENES,
  /** The first heartbeat is not measured: the process then knows the pool. */
  heartbeat: async world => {
    const counts = {samples_done: 2100, samples_total: 9000, tokens_done: 2_100_000, shards_done: 21};
    const progress = {...counts, tokens_per_s: 9000, waits_for: null};
    const beat = ({sender, lease}: {sender: Sender; lease: Lease}) =>
      answerWorker(world.deps, AGENT, {action: 'heartbeat', ...sender, phase: 'running', lease, progress});
    for (const first of senders(world, 1)) await beat(first);
    return each(world, beat);
  },
  /** The first shard of the run is not measured: the process then knows the hash of its spec. */
  shard: async world => {
    const [first = '', ...names] = senders(world, TIMES + 1).map(({lease}) => putShard(world, lease));
    await handleObjectEvent(world.deps, first);
    return each(world, (_, index) => handleObjectEvent(world.deps, names[index] ?? ''));
  },
  lease: async world => {
    await completeStreams(world, TIMES);
    return each(world, ({sender}) => askForWork(world.deps, sender));
  },
  [`${ASKERS} workers ask at once`]: async world => {
    await completeStreams(world, ASKERS);
    return askAtOnce(world);
  },
  [`${ASKERS} workers ask at once for the last ${ASKERS} streams`]: async world => {
    await completeStreams(world, ASKERS);
    await keepPending(world, ASKERS);
    return askAtOnce(world);
  },
  release: async world =>
    each(world, ({sender, lease}) =>
      answerWorker(world.deps, AGENT, {
        action: 'release',
        ...sender,
        lease,
        outcome: 'preempted',
        failure: null,
      }),
    ),
  'stream dropped': async world =>
    each(world, (_, index) =>
      handleObjectEvent(world.deps, `datasets/run-0/stream_${9_000_000 + index}.jsonl`),
    ),
  '1,000 drops within 60 s': async world => {
    let ticks = 0;
    return {
      times: DROPS,
      run: async () => {
        ticks = await dropStreams(world, DROPS, DROPPED_WITHIN_S);
      },
      facts: () => ({note: `${ticks} ticks`}),
    };
  },
  configure: async world =>
    each(world, (_, index) =>
      world.control(String(index), {action: 'configure', run: 'run-0', priority: index + 1}),
    ),
  cancel: async world =>
    each(world, ({lease: {run, stream}}, index) =>
      world.control(String(index), {action: 'cancel', run, stream}),
    ),
  /** The command and the tick that tells the workers, without the counts of a quiet tick, for each leased stream of the run. */
  pause: async world => {
    await world.tick();
    await world.minute();
    world.resetCounts();
    await world.tick();
    const quiet = {...world.usage};
    await world.minute();
    return {
      times: world.size.workers / RUNS,
      less: quiet,
      run: async () => {
        await world.control('pause', {action: 'pause', run: runName(0)});
        await world.tick();
      },
    };
  },
};
