import {parseWorkerName, paths} from '../../domain/names.ts';
import {iso} from '../../domain/time.ts';
import type {Tpu} from '../../domain/worker/nodes.ts';
import {newWorker, type Worker} from '../../domain/worker/worker.ts';
import type {Document, Value} from '../../ports.ts';
import {forEachConcurrently} from '../concurrency.ts';
import type {Deps} from '../deps.ts';
import {skipIfInvalid, workerRecords} from '../documents/documents.ts';
import {recordEvent, recordEventNow} from '../documents/event-log.ts';

/** Deletes nodes with our labels that fit no slot: such nodes get no work and cost money. */
export async function deleteStrays({tpus, store, now, log}: Deps, strays: readonly Tpu[]): Promise<void> {
  await forEachConcurrently(strays, async ({name, zone}) => {
    const text = `${name} in ${zone} has our label, and no slot has its name there: deleting it`;
    try {
      await tpus.delete(name, zone);
      await recordEventNow({store, now}, {kind: 'worker', worker: name, text});
    } catch (error) {
      log('ERROR', `${text}: ${(error as Error).message}`);
    }
  });
}

/** Fields that a mended document keeps: they identify the incarnation and its bill. */
const KEPT = [
  ...['incarnation', 'born_at', 'hello_at', 'agent_at', 'host_secrets', 'bundle', 'is_probe'],
  ...['provisioning', 'ready_at', 'usd_per_hour', 'priced_as', 'priced_from_at'],
  ...['costs', 'costs_at', 'received', 'charged_to'],
] as const;

/**
 * Mends invalid documents of workers with a node: the worker counts as booting, and its next heartbeat tells the rest. A document whose
 * incarnation is invalid too is deleted: its node is an orphan from the next tick on.
 */
export async function mendInvalidWorkers({store, log, now}: Deps, names: readonly string[]): Promise<void> {
  await forEachConcurrently(names, name =>
    store.transaction(async tx => {
      const data = await tx.get(paths.worker(name));
      const place = parseWorkerName(name);
      if (!data || (await skipIfInvalid(log, () => workerRecords.get(tx, name)))) return;
      if (!place || !isIncarnation(data.incarnation)) return tx.delete(paths.worker(name));
      const at = now();
      let worker = {...newWorker(name, place, at), phase: 'booting' as const, phase_since_at: iso(at)};
      for (const field of KEPT) worker = withValid(worker, field, data[field]);
      workerRecords.set(tx, worker);
      const text = `The document of ${name} was invalid and is mended: its work and its state are as its next heartbeat reports`;
      recordEvent(tx, {kind: 'worker', worker: name, text}, at);
    }),
  );
}

function isIncarnation(value: unknown): boolean {
  return Number.isSafeInteger(value) && Number(value) > 0;
}

/** The worker with this field, unless the field makes its document invalid. */
function withValid<W extends Worker>(worker: W, field: string, value: Value | undefined): W {
  const next = {...worker, [field]: value};
  try {
    workerRecords.parse(paths.worker(worker.name), next as unknown as Document);
    return value === undefined ? worker : next;
  } catch {
    return worker;
  }
}
