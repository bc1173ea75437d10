/** Registers stream objects: a stream gets its document once, and again when its content changes. */
import type {RunSpecInput} from '../../contracts/spec.ts';
import {slotsFor} from '../../domain/fleet/pool.ts';
import {datasetPrefix, parseDatasetObject, paths, streamObject, workerIdOf} from '../../domain/names.ts';
import type {Run} from '../../domain/run/run.ts';
import {originOfShards} from '../../domain/stream/checkpoint.ts';
import {isUnfinished, newStream, registerAgain, type Stream} from '../../domain/stream/stream.ts';
import {iso, msOf} from '../../domain/time.ts';
import type {ObjectInfo, Objects} from '../../ports.ts';
import {readPool} from '../caches/pool-cache.ts';
import type {Deps} from '../deps.ts';
import {runRecords, streamRecords} from '../documents/documents.ts';
import {recordEvent, recordRejection} from '../documents/event-log.ts';
import {clearWork, holderOf} from '../documents/lease-documents.ts';
import {requestTotals} from '../documents/request-totals.ts';
import {reopenRun} from '../documents/runs.ts';
import {advanceStream} from './advance-checkpoint.ts';
import {originOf, storedShards} from './stored-shards.ts';

export type StreamObject = {object: ObjectInfo; run: string; stream: string};

/** Lists the stream objects of a run in the bucket. */
export async function streamsOf(objects: Objects, run: string): Promise<StreamObject[]> {
  return streamsAmong(await objects.list(datasetPrefix(run))).filter(each => each.run === run);
}

export function streamsAmong(objects: readonly ObjectInfo[]): StreamObject[] {
  return objects.flatMap(object => {
    const dataset = parseDatasetObject(object.name);
    return dataset.kind === 'stream' ? [{object, run: dataset.run, stream: dataset.stream}] : [];
  });
}

/**
 * Registers a stream object. `parent`: its run. Without a frozen spec the stream waits with the run. A deleted object, and the second
 * object of one index, change nothing.
 */
export async function registerStream(
  deps: Deps,
  parent: Run | undefined,
  name: string,
  stream: string,
): Promise<void> {
  if (!parent?.spec || !parent.spec_hash) return;
  const {run} = parent;
  const names = [name, streamObject(run, stream, !name.endsWith('.gz'))];
  const [object, twin] = await Promise.all(names.map(each => deps.objects.head(each)));
  if (!object) return;
  const isKnown = (await deps.store.get(paths.stream(run, stream))) !== undefined;
  const isSecond = twin && !isKnown && (await originOf(deps, run, stream, [object, twin])) === twin;
  if (isSecond) await registerStream(deps, parent, twin.name, stream);
  // A stream with shards and no document lost its document: the next epoch must exceed every stored epoch.
  const stored = isKnown ? undefined : await storedShards(deps.objects, run, stream);
  const {crc32c} = originOfShards(object.crc32c, parent.spec_hash, stored?.shards ?? []);
  const origin = {crc32c, epoch: stored?.epoch ?? 0, bucket: deps.objects.bucket};
  const {model = ''} = parent.spec as RunSpecInput;
  const pool = parent.affinity === 'fixed' ? await readPool(deps, parent.pool) : undefined;
  const {refusal, isClosed} = await deps.store.transaction(async tx => {
    const [current, existing] = [await runRecords.get(tx, run), await streamRecords.get(tx, run, stream)];
    const holder = await holderOf(deps.log, tx, existing);
    const now = deps.now();
    if (!current) throw new Error(`Run ${run} disappeared while ${name} was registered`);
    if (isKnown && !existing) throw new Error(`Stream ${run}/${stream} disappeared while it was registered`);
    // After a lost Store, a stream from before the stop is registered again.
    const isLate = msOf(object.created_at) > msOf(current.stopped_at ?? iso(0));
    const isClosed =
      current.status === 'cancelled' ? existing || isLate : current.stopped_at !== null && isLate;
    if (isClosed) {
      const refusal = `${name} is ignored: run "${run}" was stopped, and a stop is final; drop it under another run`;
      return {refusal, isClosed};
    }
    const {next, refusal, text} = register(object, existing, run, stream, {...origin, model, now});
    if (next !== existing) {
      streamRecords.set(tx, next);
      if (next.lease === null) clearWork(tx, holder);
      const slots = pool && slotsFor(pool, current, next.worker_id);
      const which = slots && (slots.length > 0 ? `; it is for ${slots}` : noSlot(current, next.worker_id));
      recordEvent(tx, {kind: 'stream', run, stream, object: name, text: `${text}${which ?? ''}`}, now);
    }
    const isNews = next.status !== existing?.status || isUnfinished(next);
    if (isNews) reopenRun(tx, current, `stream ${stream} came`, now);
    return {refusal, isClosed: false};
  });
  if (refusal !== undefined) await recordRejection(deps, {object: name, run, stream, text: refusal});
  else if (!stored || stored.areAny) await advanceStream(deps, run, stream);
  if (!isClosed || !isKnown) return;
  // An earlier delivery may have died after it registered the stream, or after it counted the shards.
  await advanceStream(deps, run, stream);
  await requestTotals(deps, run);
}

function noSlot({stream_offset}: Run, worker_id: number): string {
  return `; it waits, for the pool has no TPU with number ${worker_id - stream_offset}, which is its own (affinity: fixed): scale the pool`;
}

type Registered = {next: Stream; refusal: string | undefined; text: string};

function register(
  object: ObjectInfo,
  existing: Stream | undefined,
  run: string,
  stream: string,
  at: {bucket: string; model: string; now: number; crc32c: string; epoch: number},
): Registered {
  const content = {
    object: object.name,
    generation: object.generation,
    size_bytes: object.size_bytes,
    crc32c: object.crc32c,
  };
  if (!existing) {
    const text = `Stream ${run}/${stream} accepted: ${object.size_bytes} bytes`;
    const {crc32c, epoch} = at;
    const next = {...newStream(run, workerIdOf(stream), content, at), crc32c, epoch};
    return unlessEmpty({next, refusal: undefined, text});
  }
  const again = registerAgain(existing, content, at.now);
  switch (again.kind) {
    case 'unchanged':
      return {next: existing, refusal: undefined, text: again.why};
    case 'changed':
      return unlessEmpty({
        next: again.stream,
        refusal: undefined,
        text: `Stream ${run}/${stream}: ${again.why}`,
      });
    case 'refused':
      return {next: again.stream ?? existing, refusal: again.reason, text: again.reason};
    default:
      return again satisfies never;
  }
}

function unlessEmpty(registered: Registered): Registered {
  const {next} = registered;
  if (next.size_bytes > 0) return registered;
  const refusal = `${next.object} is empty: it holds no record`;
  return {next: {...next, status: 'failed', last_error: refusal}, refusal, text: refusal};
}
