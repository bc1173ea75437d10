/** A run as a whole: its state and speed, why it waits, its past, its statistics and its rejected lines; and a stream with its shards. */

import {ObjectTooLarge} from '../../shared/contracts/errors.ts';
import {parseJson} from '../../shared/contracts/messages/schemas.ts';
import {shardRecords, streamRecords} from '../../shared/control-plane/documents/documents.ts';
import {metadataObject, outputPrefix, outputsPrefix, paths} from '../../shared/domain/names.ts';
import {expiresFrom} from '../../shared/domain/records/run.ts';
import type {Shard} from '../../shared/domain/records/shard.ts';
import type {Stream} from '../../shared/domain/records/stream.ts';
import {type RunResult, type Stats, streamSummary} from '../../shared/domain/run/result.ts';
import type {Objects} from '../../shared/ports/ports.ts';
import type {Cloud} from '../cloud/cloud.ts';
import type {Connection} from '../connection/connection.ts';
import type {Entry} from '../events/entry.ts';
import {openFilter} from '../events/filter.ts';
import {listRejected, readerOf} from '../events/read.ts';
import {type Line, Timeline} from '../events/timeline.ts';
import type {Answers} from '../json/index.ts';
import {type FirstSamples, readFirstSamples} from './first-samples.ts';
import {type Pace, paceOf} from './pace.ts';
import {usdPerHourFor, usdPerMillionTokens} from './rates.ts';
import {type RunState, readResult, readRun} from './run-state.ts';
import {MOST_READ} from './timeline.ts';
import {type CountedBill, countedBill} from './whole-bill.ts';
import {explain} from './why.ts';

/** A page shows each stream of a run with so many. Of a larger run it shows those at work and those that failed. */
const MOST_STREAMS = 10_000;
const MOST_EVENTS = 300;
const MOST_REJECTED = 10;
/** Streams whose rejected lines are read, and lines of each that are shown. */
const REJECTING = {streams: 3, lines: 8};
const MAX_REJECTS_BYTES = 1_000_000;
const MAX_SUMMARY_BYTES = 16_000_000;

type RejectedLine = {line: number; reason: string; samples: number};
/** `more`: rejected lines that are not shown; null where the object is too large to count them. */
export type Rejects = {stream: string; object: string; lines: RejectedLine[]; more: number | null};

/** `of`: the run, or the one stream whose statistics stand for an unfinished run. `rows`: vectors of each layer and site. */
export type StatsView = {of: string; stats: Record<string, Stats>; rows: number};

export type RunPage = {
  state: RunState;
  pace: Pace;
  why: Answers['why'];
  usd_per_million_tokens: number | null;
  bill: CountedBill;
  expires_from: string | null;
  /** Where the shards are, as the reader opens them: the folder of a local cloud, or an address in the bucket. */
  output: string;
  result: RunResult | null;
  stats: StatsView | null;
  samples: FirstSamples | null;
  rejects: Rejects[];
  /** Uploaded objects that the run rejected. */
  rejected: Entry[];
  events: Line[];
};

export async function readRunPage(
  cloud: Cloud,
  name: string,
): Promise<RunPage | {state: undefined; invalid: string[]}> {
  const {store, objects} = cloud;
  const state = await readRun(store, name, MOST_STREAMS);
  if (!state.run) return {state: undefined, invalid: state.invalid};
  const {run, streams, workers} = state;
  const result = run.status === 'completed' ? await readResult(objects, name) : null;
  return {
    ...{state, result, pace: paceOf(state), why: await explain(cloud, name, {run: true})},
    usd_per_million_tokens: usdPerMillionTokens(run),
    bill: countedBill(run, usdPerHourFor(name, workers)),
    expires_from: expiresFrom(run),
    output: outputOf(cloud.connection, name),
    stats: result
      ? {of: `run ${name}`, stats: result.stats, rows: result.rows}
      : await statsOfOne(objects, streams),
    samples: await readFirstSamples(objects, streams),
    rejects: await readRejects(objects, streams, REJECTING),
    rejected: (await listRejected(cloud, each => each === name)).slice(-MOST_REJECTED),
    events: foldedLines(await readerOf(store, await openFilter(store, name)).newest(MOST_EVENTS, MOST_READ)),
  };
}

function outputOf({folder, bucket}: Connection, run: string): string {
  const root = folder === undefined ? `gs://${bucket}` : `${folder}/buckets/${bucket}`;
  return `${root}/${outputsPrefix(run).replace(/\/?tpu_$/, '')}`;
}

/** Events as lines, the newest first. Consecutive shards of a stream share a line. */
export function foldedLines(entries: readonly Entry[]): Line[] {
  return new Timeline().add(entries, Number.POSITIVE_INFINITY).reverse();
}

async function statsOfOne(objects: Objects, streams: readonly Stream[]): Promise<StatsView | null> {
  const first = streams.find(({status, total_shards}) => status === 'completed' && total_shards > 0);
  if (!first) return null;
  const name = metadataObject(first.run, first.stream);
  try {
    const bytes = await objects.read(name, {max_bytes: MAX_SUMMARY_BYTES});
    if (!bytes) return null;
    const {stats, total_rows} = parseJson(streamSummary, Buffer.from(bytes).toString('utf8'), name);
    return {of: `stream ${first.stream}`, stats, rows: total_rows};
  } catch {
    // A worker writes the object, so it may have any content. The page has statistics when the run is complete.
    return null;
  }
}

export async function readRejects(
  objects: Objects,
  streams: readonly Stream[],
  most: {streams: number; lines: number},
): Promise<Rejects[]> {
  const rejecting = streams.filter(({rejected_samples}) => rejected_samples > 0).slice(0, most.streams);
  return Promise.all(
    rejecting.map(async ({run, stream, rejected_samples}) => {
      const object = `${outputPrefix(run, stream)}rejects.jsonl`;
      const bytes = await objects.read(object, {max_bytes: MAX_REJECTS_BYTES}).catch(tooLarge);
      const all = bytes ? Buffer.from(bytes).toString('utf8').split('\n').flatMap(rejectedLine) : null;
      const lines = (all ?? []).slice(0, most.lines);
      return {stream, object, lines, more: all ? all.length - lines.length : rejected_samples};
    }),
  );
}

/** An object that is too large to read has no lines here. Every other error is none of the object. */
function tooLarge(error: Error): undefined {
  if (!(error instanceof ObjectTooLarge)) throw error;
}

/** A line of another form is left out: a worker has written the object. */
function rejectedLine(text: string): RejectedLine[] {
  try {
    const {line, reason, samples} = JSON.parse(text) as Record<string, unknown>;
    if (typeof line !== 'number' || typeof reason !== 'string') return [];
    return [{line, reason, samples: typeof samples === 'number' ? samples : 1}];
  } catch {
    return [];
  }
}

const MOST_SHARDS = 100;

const MOST_REJECTED_OF_STREAM = 1000;

/** `shards`: the newest, the newest first. `rejects`: empty for a stream without rejected lines. */
export type StreamPage = {stream: Stream; shards: Shard[]; rejects: Rejects[]; why: Answers['why']};

export async function readStreamPage(cloud: Cloud, run: string, id: string): Promise<StreamPage | undefined> {
  const stream = await streamRecords.get(cloud.store, run, id);
  if (!stream) return undefined;
  const newest = {order_by: {field: 'shard', direction: 'desc'}, limit: MOST_SHARDS} as const;
  const shards = shardRecords.parseAll(await cloud.store.query(paths.shards(run, id), newest), () => {});
  const rejects = await readRejects(cloud.objects, [stream], {streams: 1, lines: MOST_REJECTED_OF_STREAM});
  return {stream, shards, rejects, why: await explain(cloud, `${run}/${id}`)};
}
