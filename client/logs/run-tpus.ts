/** TPUs that work or worked on a run, each with its newest incarnation that did. */
import {forEachConcurrently} from '../../shared/control-plane/calls/concurrency.ts';
import {
  attemptRecords,
  streamRecords,
  workerRecords,
} from '../../shared/control-plane/documents/documents.ts';
import {parseWork, paths} from '../../shared/domain/names.ts';
import type {Worker} from '../../shared/domain/records/worker.ts';
import type {Store} from '../../shared/ports/ports.ts';
import {say} from '../text/output.ts';

export type Incarnation = {tpu: string; incarnation: number};

/** Attempts of a TPU that a search reads: its newest. */
const MOST_ATTEMPTS = 50;

export async function tpusOfRun(store: Store, run: string): Promise<Incarnation[]> {
  const found = new Map<string, number>();
  const add = (tpu: string, incarnation: number) =>
    found.set(tpu, Math.max(incarnation, found.get(tpu) ?? 0));
  const leased = [{field: 'status', op: '==', value: 'in_progress'} as const];
  const streams = streamRecords.parseAll(await store.query(paths.streams(run), {where: leased}), warn);
  for (const {lease} of streams) if (lease) add(lease.worker, lease.incarnation);
  const workers = workerRecords.parseAll(await store.query('workers'), warn);
  for (const worker of workers) if (isFor(run, worker)) add(worker.name, worker.incarnation);
  const others = workers.filter(({name}) => !found.has(name));
  await forEachConcurrently(others, async ({name}) => {
    const incarnation = await attemptFor(store, run, name);
    if (incarnation !== undefined) add(name, incarnation);
  });
  return [...found]
    .map(([tpu, incarnation]) => ({tpu, incarnation}))
    .sort((a, b) => a.tpu.localeCompare(b.tpu));
}

/** True for a TPU that works for the run, or has in this life. */
function isFor(
  run: string,
  {work, costs, charged_to}: Pick<Worker, 'work' | 'costs' | 'charged_to'>,
): boolean {
  return parseWork(work)?.run === run || run in costs || charged_to === run;
}

async function attemptFor(store: Store, run: string, tpu: string): Promise<number | undefined> {
  const order_by = {field: 'incarnation', direction: 'desc'} as const;
  const stored = await store.query(`${paths.worker(tpu)}/attempts`, {order_by, limit: MOST_ATTEMPTS});
  const attempts = attemptRecords.parseAll(stored, warn);
  const isMeant = ({costs, ...others}: (typeof attempts)[number]) =>
    run in costs || parseWork(typeof others.work === 'string' ? others.work : null)?.run === run;
  return attempts.find(isMeant)?.incarnation;
}

function warn({message}: Error): void {
  say(message);
}
