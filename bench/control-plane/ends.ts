/** Two scenes that a function of 512 MiB must manage: a very large run completes, and commits fail while TPUs are deleted. */
import type {TaskMessage} from '../../shared/contracts/messages/schemas.ts';
import type {Deps} from '../../shared/control-plane/deps.ts';
import {handleTaskMessage} from '../../shared/control-plane/tasks/task-message.ts';
import {tick} from '../../shared/control-plane/tick/tick.ts';
import {manifestObject, streamId, streamObject} from '../../shared/domain/names.ts';
import {openSqliteStore} from '../../shared/embedded/sqlite-store.ts';
import type {Document, Store} from '../../shared/ports/ports.ts';
import {seeded} from '../../test/world/clock.ts';
import {depsOf} from '../../test/world/deps.ts';
import {SceneBucket} from './bucket.ts';
import {endingDocuments, metadataTexts, RUN} from './ending-documents.ts';
import {metered, noUsage} from './meter.ts';
import {configOf, NOW, nodesOf, putAll, type Size} from './scene.ts';
import type {Ended} from './scene-work.ts';
import {tpusOf} from './world.ts';

const MOST_TICKS = 60;

const [verb, file = '', workers, streams, latency] = process.argv.slice(2);
const size: Size = {workers: Number(workers), streams: Number(streams)};
const store = openSqliteStore(file);
if (verb === 'build') await putAll(store, endingDocuments(size));
else console.log(JSON.stringify(await measure(store, verb === 'complete', Number(latency))));
await store.close();

/**
 * Ticks until the run is complete, or twice while commits fail. Each tick is followed by the messages that finish the run. Time is the
 * machine's; the next tick begins after the pause of a wake, or after a minute.
 */
async function measure(opened: Store, isComplete: boolean, latency_ms: number): Promise<Omit<Ended, 'what'>> {
  const names = Array.from({length: size.streams}, (_, index) => streamObject(RUN, streamId(index)));
  const bucket = new SceneBucket(names.sort(), metadataTexts());
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
  const seconds = async (work: Promise<void>) => {
    const start = performance.now();
    await (isComplete ? work : work.catch(() => {}));
    return (performance.now() - start) / 1000;
  };
  const deletes: number[] = [];
  const messages: number[] = [];
  const isOver = async () =>
    isComplete ? (await opened.get(`runs/${RUN}`))?.status === 'completed' : deletes.length === 2;
  while (!(await isOver())) {
    if (deletes.length === MOST_TICKS) throw new Error(`The run is not complete after ${MOST_TICKS} ticks`);
    const before = deleted.size;
    isWoken = false;
    const tick_s = await seconds(tick(deps));
    deletes.push(deleted.size - before);
    for (let next = finishes.shift(); next; next = finishes.shift())
      messages.push(await seconds(handleTaskMessage(deps, next as TaskMessage)));
    waited_ms += 1000 * (isWoken ? Math.max(10, 5 * tick_s) : Math.max(0, 60 - tick_s));
  }
  const {result} = JSON.parse(bucket.text(manifestObject(RUN)) ?? '{}');
  if (isComplete && result?.streams !== size.streams)
    throw new Error(`The result counts ${result?.streams} of ${size.streams} streams`);
  return {
    messages: messages.length,
    longest_message_s: Math.max(...messages),
    first_delete_s: Math.min(...deleted.values()),
    last_delete_s: Math.max(...deleted.values()),
    deletes,
    peak_mb: process.resourceUsage().maxRSS / 1024,
  };
}

/** Fails one of a hundred transactions. Half of the failed ones are written. */
function withFailures(store: Store): Store {
  const random = seeded(1);
  return {
    ...store,
    transaction: async work => {
      const luck = random();
      if (luck < 0.005) throw new Error('the transaction was not reached');
      const done = await store.transaction(work);
      if (luck < 0.01) throw new Error('the answer of the transaction was lost');
      return done;
    },
  };
}
