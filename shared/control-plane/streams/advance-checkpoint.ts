/** Moves the checkpoint of a stream: counts its stored shards, whose events may be lost or arrive in any order. */
import {
  type OutputObject,
  outputPrefix,
  parseOutputObject,
  partialsPrefix,
  shardListingStart,
  shardObject,
} from '../../domain/names.ts';
import type {Shard} from '../../domain/records/shard.ts';
import {isUnfinished, type Stream} from '../../domain/records/stream.ts';
import {decideAdvance} from '../../domain/stream/advance.ts';
import type {Unfit} from '../../domain/stream/checkpoint.ts';
import {leaseProblem} from '../../domain/stream/proof.ts';
import type {Bus, ObjectInfo} from '../../ports/ports.ts';
import type {Deps} from '../deps.ts';
import {streamRecords} from '../documents/documents.ts';
import {storeAdvance} from '../documents/lease-documents.ts';
import {assertSpecHash, frozenOutputOf} from '../documents/runs.ts';
import {withCheckedFinal} from './final-shard.ts';
import {setAside} from './set-aside.ts';
import {readShards} from './stored-shards.ts';

type Named = {run: string; stream: string};

const SUMMARIES = ['metadata.json', 'rejects.jsonl', 'samples.json'];

/** Most concurrent uploads of one stream; see the extractor's pipeline. Their events arrive in any order. */
const MOST_AHEAD = 8;

/**
 * Counts a stored shard if it is the next one of its stream, then the stored shards after it. Only a lost event causes a listing, which costs
 * more than ten reads of an object. Sets the object aside if it is not a shard. Returns true if the stream has ended.
 */
export async function advanceByShard(deps: Deps, output: OutputObject): Promise<boolean> {
  const {run, stream, shard, format} = output;
  for (let next = shard; ; ) {
    const object = await deps.objects.head(shardObject(run, stream, next, format));
    if (!object) return false;
    const {current, unfit} = await countShards(deps, run, stream, [object]);
    if (!current) return false;
    await setAside(deps, current, unfit, [object]);
    if (!isUnfinished(current)) return true;
    if (unfit.length > 0) return false;
    const {total_shards} = current;
    if (total_shards < next) {
      const isLost = next - total_shards > MOST_AHEAD;
      const advanced = isLost ? await auditStream(deps, run, stream) : current;
      return advanced !== undefined && !isUnfinished(advanced);
    }
    next = total_shards + 1;
  }
}

/**
 * Advances the checkpoint of a stream to the shards in the bucket, and returns the stream. Only the listing counts; the number and the order
 * of events do not matter.
 */
export async function advanceStream(deps: Deps, run: string, stream: string): Promise<Stream | undefined> {
  return (await advanceAndKeep(deps, run, stream)).current;
}

/** Like `advanceStream`. `waiting`: shards after a gap that the last lease explains. */
export async function advanceAndKeep(
  deps: Deps,
  run: string,
  stream: string,
): Promise<Pick<Counted, 'current' | 'waiting'>> {
  const {current, unfit, waiting} = await countListed(deps, run, stream);
  // Only on-object and on-task move objects.
  if (unfit.length > 0) await reportObject(deps.bus, {run, stream}, null);
  return {current, waiting};
}

/** Asks for an audit of the stream's folder. `object`: to be set aside too, because a worker found other content there. */
export async function reportObject(bus: Bus, {run, stream}: Named, object: string | null): Promise<void> {
  await bus.publish('tasks', {task: 'audit', run, stream, object});
}

/** Audits the stream's folder, and sets the named object aside unless it is a counted shard. */
export async function auditReported(
  deps: Deps,
  {run, stream, object: name}: Named & {object: string | null},
): Promise<void> {
  const current = await auditStream(deps, run, stream);
  if (!current || name === null || !isReplaced(current, name)) return;
  const object = await deps.objects.head(name);
  const reason = 'a worker makes other content from the stream and its spec';
  if (object) await setAside(deps, current, [{object: name, by: 'content', reason}], [object]);
}

/** True for an object that the stream's worker stores again if it is missing. */
function isReplaced({run, stream, status, total_shards}: Stream, name: string): boolean {
  const folder = outputPrefix(run, stream);
  if (status === 'completed' || !name.startsWith(folder)) return false;
  const shard = parseOutputObject(name)?.shard;
  if (shard !== undefined) return shard > total_shards;
  const file = name.slice(folder.length);
  // The counted shards were made with these generated tokens.
  return SUMMARIES.includes(file) || (total_shards === 0 && /^generated_\d{4,9}\.jsonl$/.test(file));
}

/** Advances the checkpoint, and sets objects aside that take the place of a shard. Needs the right to move objects. */
export async function auditStream(deps: Deps, run: string, stream: string): Promise<Stream | undefined> {
  const {current, unfit, objects} = await countListed(deps, run, stream, true);
  await setAside(deps, {run, stream}, unfit, objects);
  return current;
}

async function countListed(
  deps: Deps,
  run: string,
  stream: string,
  isAudit = false,
): Promise<Counted & {objects: ObjectInfo[]}> {
  const known = await streamRecords.get(deps.store, run, stream);
  const nothing = {current: known, unfit: [], waiting: [], objects: []};
  if (!known || (known.status === 'completed' && !isAudit)) return nothing;
  const objects = await deps.objects.list(outputPrefix(run, stream), {
    start: shardListingStart(run, stream, known.total_shards + 1),
  });
  if (objects.length === 0) return nothing;
  return {...(await countShards(deps, run, stream, objects)), objects};
}

type Counted = {current: Stream | undefined; unfit: readonly Unfit[]; waiting: readonly number[]};

/** Counts the shards among the objects, in as many transactions as needed. The checkpoint is correct after each one. */
export async function countShards(
  deps: Deps,
  run: string,
  stream: string,
  objects: readonly ObjectInfo[],
): Promise<Counted> {
  const frozen = await frozenOutputOf(deps, run);
  // The bytes of an object are only read if a lease explains it.
  const isLeased = async (shard: Shard) => {
    const known = await streamRecords.get(deps.store, run, stream);
    return known !== undefined && leaseProblem(known, shard) === undefined;
  };
  const read = readShards({run, stream}, objects);
  const stored = await withCheckedFinal(deps.objects, read, objects, isLeased);
  let current: Stream | undefined;
  let isNew = false;
  let [unfit, waiting]: [readonly Unfit[], readonly number[]] = [[], []];
  for (let hasMore = true; hasMore; ) {
    const advance = await deps.store.transaction(async tx => {
      const before = await streamRecords.get(tx, run, stream);
      if (!before || !frozen) return {stream: before, isNew, unfit, waiting, hasMore: false};
      const now = deps.now();
      const decided = decideAdvance(before, frozen, stored, now);
      if (decided.needsSpecCheck) await assertSpecHash(deps, tx, run, frozen.spec_hash);
      await storeAdvance(deps.log, tx, before, decided, now);
      return {...decided, isNew: decided.countedShards.length > 0};
    });
    ({stream: current, isNew, unfit, waiting, hasMore} = advance);
  }
  if (current?.status !== 'completed' || !isNew) return {current, unfit, waiting};
  // The bucket's lifecycle rule deletes partial shards that are missed here.
  for (const {name} of await deps.objects.list(partialsPrefix(run, stream))) await deps.objects.delete(name);
  return {current, unfit, waiting};
}
