/** Two scenes that a function of 512 MiB must manage: a very large run completes, and commits fail while TPUs are deleted. */
import type {TaskMessage} from '../../shared/contracts/schemas.ts';
import type {Deps} from '../../shared/control-plane/deps.ts';
import {handleTaskMessage} from '../../shared/control-plane/tasks/task-message.ts';
import {tick} from '../../shared/control-plane/tick/tick.ts';
import {manifestObject, streamId, streamObject} from '../../shared/domain/names.ts';
import {openSqliteStore} from '../../shared/embedded/sqlite-store.ts';
import type {Document, Store, Transaction} from '../../shared/ports.ts';
import {depsOf} from '../../test/support/deps.ts';
import {SceneBucket} from './bucket.ts';
import {fillEnding, metadataTexts, RUN} from './ending-documents.ts';
import {metered, noUsage} from './meter.ts';
import {configOf, NOW, nodesOf, type Size} from './scene.ts';
import type {Ended} from './scene-work.ts';
import {Stopwatch} from './stopwatch.ts';
import {tpusOf} from './world.ts';

const MOST_TICKS = 60;

const [verb, file = '', workers, streams, latency] = process.argv.slice(2);
const size: Size = {workers: Number(workers), streams: Number(streams)};
const store = openSqliteStore(file);
if (verb === 'build') await fillEnding(store, size);
else console.log(JSON.stringify(await measure(store, verb === 'complete', Number(latency))));
await store.close();

/**
 * Ticks until the run is complete, or twice while commits fail. Each tick is followed by the messages that finish the run. Time is the
 * machine's; the next tick begins after the pause of a wake, or after a minute.
 */
async function measure(opened: Store, isComplete: boolean, latency_ms: number): Promise<Omit<Ended, 'what'>> {
  const [ticks, messages] = [new Stopwatch(), new Stopwatch()];
  const names = Array.from({length: size.streams}, (_, index) => streamObject(RUN, streamId(index)));
  const bucket = new SceneBucket(names.sort(), metadataTexts());
  bucket.onRead = () => messages.sample();
  const documentsIn = (path: string) => (path.endsWith('/streams') ? size.streams : size.workers);
  const metering = metered(opened, noUsage(), {latency_ms, documentsIn});
  const began = performance.now();
  const deleted = new Map<string, number>();
  const finishes: Document[] = [];
  let isWoken = false;
  let waited_ms = 0;
  const publish: Deps['bus']['publish'] = async (topic, message) => {
    const {action, worker, task} = message;
    if (topic === 'tick') isWoken = true;
    // The resync of the bucket is no part of the scene.
    if (task === 'finish') finishes.push(message);
    if (action === 'delete' && !deleted.has(String(worker)))
      deleted.set(String(worker), (performance.now() - began) / 1000);
    return '1';
  };
  const left = () => nodesOf(size).filter(({name}) => !deleted.has(name));
  const deps = depsOf({
    store: isComplete ? metering : withFailures(metering),
    objects: bucket.counted(latency_ms),
    bus: {publish},
    tpus: tpusOf(left),
    now: () => Math.round(NOW + waited_ms + performance.now() - began),
    log: () => {},
    config: configOf(size),
  });
  const mayFail = (work: Promise<void>) => (isComplete ? work : work.catch(() => {}));
  const deletes: number[] = [];
  const isOver = async () =>
    isComplete ? (await opened.get(`runs/${RUN}`))?.status === 'completed' : deletes.length === 2;
  while (!(await isOver())) {
    if (ticks.calls === MOST_TICKS) throw new Error(`The run is not complete after ${MOST_TICKS} ticks`);
    const before = deleted.size;
    isWoken = false;
    const tick_s = await ticks.time(() => mayFail(tick(deps)));
    deletes.push(deleted.size - before);
    for (let next = finishes.shift(); next; next = finishes.shift()) {
      const message = next as TaskMessage;
      await messages.time(() => mayFail(handleTaskMessage(deps, message)));
    }
    waited_ms += 1000 * (isWoken ? Math.max(10, 5 * tick_s) : Math.max(0, 60 - tick_s));
  }
  const {result} = JSON.parse(bucket.text(manifestObject(RUN)) ?? '{}');
  if (isComplete && result?.streams !== size.streams)
    throw new Error(`The result counts ${result?.streams} of ${size.streams} streams`);
  return {
    ticks: ticks.calls,
    longest_s: ticks.longest_s,
    messages: messages.calls,
    longest_message_s: messages.longest_s,
    longest_cpu_s: Math.max(ticks.longest_cpu_s, messages.longest_cpu_s),
    first_delete_s: Math.min(...deleted.values()),
    last_delete_s: Math.max(...deleted.values()),
    deletes,
    peak_heap_mb: Math.max(ticks.peak_heap_mb, messages.peak_heap_mb),
    peak_mb: process.resourceUsage().maxRSS / 1024,
  };
}

/** Fails one of a hundred transactions. Half of the failed ones are written. */
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
