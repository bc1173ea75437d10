/** Registers stream objects: a stream gets its document once, and again when its content changes. */
import {parseDatasetObject, paths, streamObject} from '../../domain/names.ts';
import type {Run} from '../../domain/records/run.ts';
import {notIdle} from '../../domain/records/worker.ts';
import {originOfShards} from '../../domain/stream/checkpoint.ts';
import {decideRegistration} from '../../domain/stream/registration.ts';
import type {ObjectInfo} from '../../ports/ports.ts';
import {readPool} from '../caches/pool-cache.ts';
import type {Deps} from '../deps.ts';
import {runRecords, streamRecords} from '../documents/documents.ts';
import {recordEvent, recordRejection} from '../documents/event-log.ts';
import {clearWork, holderOf} from '../documents/lease-documents.ts';
import {reopenRun} from '../documents/runs.ts';
import {advanceStream} from './advance-checkpoint.ts';
import {originOf, storedShards} from './stored-shards.ts';

export type StreamObject = {object: ObjectInfo; run: string; stream: string};

export function streamsAmong(objects: readonly ObjectInfo[]): StreamObject[] {
  return objects.flatMap(object => {
    const dataset = parseDatasetObject(object.name);
    return dataset.kind === 'stream' ? [{object, run: dataset.run, stream: dataset.stream}] : [];
  });
}

/**
 * Registers a stream object. `parent`: its run. Without a frozen spec the stream waits together with the run. A deleted object, or the second
 * object of one index, changes nothing.
 */
export async function registerStream(deps: Deps, parent: Run | undefined, name: string, stream: string) {
  if (!parent?.spec || !parent.spec_hash) return;
  const {run} = parent;
  const names = [name, streamObject(run, stream, !name.endsWith('.gz'))];
  const [object, twin] = await Promise.all(names.map(each => deps.objects.head(each)));
  if (!object) return;
  const isKnown = (await deps.store.get(paths.stream(run, stream))) !== undefined;
  const isSecond = twin && !isKnown && (await originOf(deps, run, stream, [object, twin])) === twin;
  if (isSecond) await registerStream(deps, parent, twin.name, stream);
  // A stream that has shards but no document has lost it: the next epoch must exceed every stored epoch.
  const stored = isKnown ? undefined : await storedShards(deps.objects, run, stream);
  const {crc32c} = originOfShards(object.crc32c, parent.spec_hash, stored?.shards ?? []);
  const {generation, size_bytes, created_at} = object;
  const dropped = {
    ...{stream, created_at, content: {object: name, generation, size_bytes, crc32c: object.crc32c}},
    ...{bucket: deps.objects.bucket, model: String(parent.spec.model ?? '')},
    origin: {crc32c, epoch: stored?.epoch ?? 0},
  };
  const pool = parent.affinity === 'fixed' ? await readPool(deps, parent.pool) : undefined;
  const {refusal, isClosed} = await deps.store.transaction(async tx => {
    const [current, before] = [await runRecords.get(tx, run), await streamRecords.get(tx, run, stream)];
    const holder = await holderOf(deps.log, tx, before);
    const now = deps.now();
    if (!current) throw new Error(`Run ${run} disappeared while ${name} was registered`);
    if (isKnown && !before) throw new Error(`Stream ${run}/${stream} disappeared while it was registered`);
    const registration = decideRegistration(current, before, dropped, pool, now);
    const {stream: next, events, reopens} = registration;
    if (next && next !== before) streamRecords.set(tx, next);
    if (next !== before && next?.lease === null) clearWork(tx, holder && notIdle(holder));
    for (const event of events) recordEvent(tx, event, now);
    if (reopens) reopenRun(tx, current, `stream ${stream} came`, now);
    return registration;
  });
  if (refusal !== undefined) await recordRejection(deps, {object: name, run, stream, text: refusal});
  // An earlier delivery may have died after it registered the stream or counted the shards.
  const isClosedLater = isClosed && isKnown;
  const mayHaveShards = refusal === undefined && (!stored || stored.areAny);
  if (mayHaveShards || isClosedLater) await advanceStream(deps, run, stream);
}
