import {Rejected} from '../../contracts/errors.ts';
import {parseRunSpec, type RunSpecInput} from '../../contracts/spec.ts';
import {CANCELLED} from '../../domain/commands.ts';
import {slotsFor} from '../../domain/fleet/pool.ts';
import {
  datasetPrefix,
  isRunId,
  outputsPrefix,
  parseDatasetObject,
  parseOutputObject,
  paths,
  streamObject,
  workerIdOf,
} from '../../domain/names.ts';
import {isOpen, LOST_AFTER_S, lostReason, NO_ORDERS, NO_STREAMS, type Run} from '../../domain/run/run.ts';
import {originOfShards} from '../../domain/stream/checkpoint.ts';
import {isUnfinished, newStream, registerAgain, type Stream} from '../../domain/stream/stream.ts';
import {isOlderThan, iso, msOf} from '../../domain/time.ts';
import type {ObjectInfo} from '../../ports.ts';
import {reopenRun} from '../runs/open-runs.ts';
import {freezeSpec, readText, whyIgnored} from '../runs/run-manifest.ts';
import {abreast} from '../state/concurrency.ts';
import type {Deps} from '../state/deps.ts';
import {runRecords, streamRecords, unlessBroken} from '../state/documents.ts';
import {tell, tellRejected} from '../state/event-log.ts';
import {holderOf, takeWork} from '../state/lease-documents.ts';
import {type RunOrders, readOrders} from '../state/orders.ts';
import {readPool} from '../state/pools.ts';
import {lookForWork} from '../workers/plan-fleet.ts';
import {advanceStream, originOf, storedShards, takeShard} from './advance-checkpoint.ts';

/** An object was finalised: a stream to work on, the spec of a run, a shard, or nothing of ours. */
export async function takeObject(deps: Deps, name: string): Promise<void> {
  const shard = parseOutputObject(name);
  if (shard) {
    await takeShard(deps, shard);
    return;
  }
  if (!name.startsWith('datasets/') || name.endsWith('/')) return;
  const dataset = parseDatasetObject(name);
  switch (dataset.kind) {
    case 'unknown':
      return tellRejected(deps, {
        ...runOf(name),
        object: name,
        text: `${name} is ignored: ${dataset.reason}`,
      });
    case 'spec':
      return takeSpec(deps, dataset.run, name);
    case 'stream':
      if (await registerStream(deps, name, dataset.run, dataset.stream)) await wake(deps);
      return;
    default:
      return dataset satisfies never;
  }
}

/** The run that a foreign name under `datasets/` was meant for, if it names one. */
function runOf(name: string): {run?: string} {
  const [, run = '', file] = name.split('/');
  return file !== undefined && isRunId(run) ? {run} : {};
}

/** Registers every stream of a run that lies in the bucket, as if each had just been dropped, and sees to its work. */
export async function takeRun(deps: Deps, run: string): Promise<void> {
  await registerRun(deps, run);
  await wake(deps);
}

export async function registerRun(deps: Deps, run: string): Promise<void> {
  await abreast(await streamsOf(deps, run), ({object, stream}) =>
    unlessBroken(deps, () => registerStream(deps, object.name, run, stream)),
  );
}

export type StreamObject = {object: ObjectInfo; run: string; stream: string};

/** The stream objects of a run in the bucket. */
export async function streamsOf(deps: Pick<Deps, 'objects'>, run: string): Promise<StreamObject[]> {
  return streamsAmong(await deps.objects.list(datasetPrefix(run))).filter(each => each.run === run);
}

export function streamsAmong(objects: readonly ObjectInfo[]): StreamObject[] {
  return objects.flatMap(object => {
    const dataset = parseDatasetObject(object.name);
    return dataset.kind === 'stream' ? [{object, run: dataset.run, stream: dataset.stream}] : [];
  });
}

/** The process has seen it registered, or refused: `stream` is one that has a document. */
export function see({taken}: Deps, run: string, object: ObjectInfo, stream: string | undefined): void {
  const seen = taken.get(run) ?? {objects: new Set(), streams: new Set()};
  taken.set(run, seen);
  seen.objects.add(versionOf(object));
  if (stream !== undefined) seen.streams.add(stream);
}

export function versionOf({name, generation}: ObjectInfo): string {
  return `${name}#${generation}`;
}

/**
 * Takes a stream as it lies in the bucket now, if that is not what it was registered as: the event may be late, and a worker
 * that is sent for a generation that is gone can only fail.
 */
export async function catchUp(
  deps: Deps,
  registered: {run: string; stream: string; object: string; generation: string},
): Promise<void> {
  const {run, stream, object, generation} = registered;
  const present = await deps.objects.head(object);
  if (present && present.generation !== generation) await registerStream(deps, object, run, stream);
}

export async function wake(deps: Deps): Promise<void> {
  await deps.ticker.on();
  await lookForWork(deps);
}

/** `run.json` came, perhaps late: a run that waits for a good one begins; a run whose spec is frozen is left as it is. */
async function takeSpec(deps: Deps, run: string, name: string): Promise<void> {
  const known = await runRecords.get(deps.store, run);
  try {
    const text = await readText(deps, name);
    if (text === undefined) return;
    const input = parseRunSpec(text, name);
    const why = known?.spec && whyIgnored(deps, known, input);
    if (why) throw new Rejected(`${name} is ignored: ${why}`);
  } catch (error) {
    if (!(error instanceof Rejected)) throw error;
    return tellRejected(deps, {object: name, run, text: error.message});
  }
  if (known && !known.spec) await takeRun(deps, run);
}

/**
 * True when there is something for a tick to look at: a change, or a run that is open, perhaps since an earlier delivery that
 * died before it switched the beat on.
 */
export async function registerStream(
  deps: Deps,
  name: string,
  run: string,
  stream: string,
): Promise<boolean> {
  const names = [name, streamObject(run, stream, !name.endsWith('.gz'))];
  const [object, twin] = await Promise.all(names.map(each => deps.objects.head(each)));
  if (!object) return false;
  const parent = await ensureRun(deps, run);
  if (!parent?.spec || !parent.spec_hash) return false;
  const isKnown = (await deps.store.get(paths.stream(run, stream))) !== undefined;
  const isSecond = twin && !isKnown && (await originOf(deps, run, stream, [object, twin])) === twin;
  const isFirstTaken = isSecond && (await registerStream(deps, twin.name, run, stream));
  // A stream that has shards and no document had one that was lost: the next grant must be above the epochs of that time.
  const stored = isKnown ? undefined : await storedShards(deps, run, stream);
  const {crc32c} = originOfShards(object.crc32c, parent.spec_hash, stored?.shards ?? []);
  const origin = {crc32c, epoch: stored?.epoch ?? 0, bucket: deps.objects.bucket};
  const {model = ''} = parent.spec as RunSpecInput;
  const pool = parent.affinity === 'fixed' ? await readPool(deps) : undefined;
  const {refused, changed, isOpenNow, isThere} = await deps.store.transaction(async tx => {
    const [current, existing] = [await runRecords.get(tx, run), await streamRecords.get(tx, run, stream)];
    const holder = await holderOf(deps, tx, existing);
    const now = deps.now();
    if (!current) throw new Error(`Run ${run} disappeared while ${name} was registered`);
    if (isKnown && !existing) throw new Error(`Stream ${run}/${stream} disappeared while it was registered`);
    // What was there before the stop is made again as it was, should the Store have been lost.
    const isLate = msOf(object.created_at) > msOf(current.stopped_at ?? iso(0));
    const isClosed =
      current.status === 'cancelled' ? existing || isLate : current.stopped_at !== null && isLate;
    if (isClosed) {
      const refused = `${name} is ignored: run "${run}" was stopped, and a stop is final; drop it under another run`;
      return {refused, changed: false, isOpenNow: false, isThere: existing !== undefined};
    }
    const registered = register(object, existing, run, stream, {...origin, model, now});
    const {refusal, text} = registered;
    const isCancelled = !existing && current.cancelled_streams.includes(stream);
    const next: Stream = isCancelled
      ? {...registered.next, status: 'failed', last_error: CANCELLED}
      : registered.next;
    if (next !== existing) {
      streamRecords.set(tx, next);
      if (next.lease === null) takeWork(tx, holder);
      const slots = pool && slotsFor(pool, current, next.worker_id);
      const which = slots && (slots.length > 0 ? `; it is for ${slots}` : noSlot(current, next.worker_id));
      tell(tx, {kind: 'stream', run, stream, object: name, text: `${text}${which ?? ''}`}, now);
    }
    const isNews = next.status !== existing?.status || isUnfinished(next);
    const reopens = isNews && reopenRun(tx, current, `stream ${stream} came`, now);
    const isOpenNow = reopens || isOpen(current);
    return {refused: refusal, changed: next !== existing, isOpenNow, isThere: true};
  });
  if (refused !== undefined) {
    await tellRejected(deps, {object: name, run, stream, text: refused});
    see(deps, run, object, isThere ? stream : undefined);
    return changed || isFirstTaken === true;
  }
  if (!stored || stored.areAny) await advanceStream(deps, run, stream);
  return changed || isOpenNow;
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

/** The run with its frozen spec; a run whose `run.json` is bad is recorded as failed and waits for a good one. */
export async function ensureRun(deps: Deps, run: string): Promise<Run | undefined> {
  const known = await runRecords.get(deps.store, run);
  if (known?.spec) return known;
  let frozen: Awaited<ReturnType<typeof freezeSpec>> | undefined;
  let orders: RunOrders | undefined;
  let reason: string | null = null;
  let isLost = false;
  try {
    orders = await readOrders(deps, run);
    frozen = await freezeSpec(deps, run);
    isLost = await hadDocument(deps, run, frozen.frozen_at);
    if (isLost) reason = lostReason(run);
  } catch (error) {
    if (!(error instanceof Rejected)) throw error;
    reason = error.message;
  }
  return deps.store.transaction(async tx => {
    const current = await runRecords.get(tx, run);
    if (current?.spec || current?.status === 'cancelled') return current;
    if (current && current.reason === reason && !frozen) return current;
    const now = deps.now();
    const next: Run = {
      ...current,
      run,
      ...NO_STREAMS,
      ...NO_ORDERS,
      created_at: frozen?.frozen_at ?? iso(now),
      updated_at: iso(now),
      status: isLost ? 'paused' : frozen ? 'active' : 'failed',
      reason,
      spec: frozen?.spec ?? null,
      spec_hash: frozen?.spec_hash ?? null,
      pool: frozen?.placement.pool ?? deps.config.pool.pool,
      priority: frozen?.placement.priority ?? 0,
      budget_usd: frozen?.placement.budget_usd ?? null,
      affinity: frozen?.placement.affinity ?? 'any',
      stream_offset: frozen?.placement.stream_offset ?? 0,
      spent_usd: 0,
      cost_usd: 0,
      ...(orders && obeyed(orders, frozen !== undefined)),
    };
    runRecords.set(tx, next);
    const text =
      reason ?? `Run ${run} begins: model ${frozen?.spec.model}, spec ${frozen?.spec_hash.slice(0, 12)}`;
    tell(tx, {kind: frozen ? 'run' : 'rejected', run, text}, now);
    return next;
  });
}

/**
 * Whether a run without a document had one before: it has a shard, or its spec was frozen long ago. Such a run waits for a person:
 * the pause, the stop or the budget that its document held may be lost.
 */
async function hadDocument(deps: Deps, run: string, frozen_at: string | null): Promise<boolean> {
  if (frozen_at !== null && isOlderThan(frozen_at, LOST_AFTER_S, deps.now())) return true;
  const outputs = await deps.objects.list(outputsPrefix(run), {limit: MOST_OUTPUTS});
  return outputs.some(({name}) => parseOutputObject(name) !== undefined);
}

/** Objects among which a shard is looked for: in its folder, two others may come before it. */
const MOST_OUTPUTS = 1000;

/** A run that waits for a good `run.json` waits for it whatever was said, but for a stop. */
function obeyed({schema: _, run: __, status, reason, ...orders}: RunOrders, isFrozen: boolean): Partial<Run> {
  const isSaid = status === 'cancelled' || (isFrozen && status === 'paused');
  return {...orders, cost_usd: orders.spent_usd, ...(isSaid ? {status, reason} : {})};
}
