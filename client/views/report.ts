/** The report of a run: the page of the run, its dataset with checksums, the lives of its TPUs, and the reasons of its rejected lines. */
import {createHash} from 'node:crypto';
import {forEachConcurrently} from '../../shared/control-plane/calls/concurrency.ts';
import {attemptRecords} from '../../shared/control-plane/documents/documents.ts';
import {downloadsOf} from '../../shared/domain/billing/cost.ts';
import {paths} from '../../shared/domain/names.ts';
import type {Stream} from '../../shared/domain/records/stream.ts';
import type {WorkerAttempt} from '../../shared/domain/worker/attempt.ts';
import type {LifePhases} from '../../shared/domain/worker/life-phases.ts';
import type {Objects, Store} from '../../shared/ports/ports.ts';
import type {Cloud} from '../cloud/cloud.ts';
import {phases} from '../json/tpus.ts';
import {complain} from '../text/output.ts';
import {type Rejects, type RunPage, readRejects, readRunPage} from './run-page.ts';
import {streamsOf} from './run-state.ts';

/** Streams with rejected lines that are read, and lines of each. */
const REJECTING = {streams: 50, lines: 100_000};
/** TPUs whose ended lives are read, and the newest lives of each. */
const MOST_TPUS = 500;
const MOST_LIVES = 100;
const MOST_REASONS = 12;

/** Stream objects as they were read. `digest`: SHA-256 over a line `OBJECT CRC32C` of each, in the order of the streams. */
type Dataset = {streams: Stream[]; bytes: number; digest: string; isWhole: boolean};

/** An ended life of a TPU that cost the run something. `usd`: the part of the run, and `share` its part of the life's time. */
export type Life = {
  tpu: string;
  cause: string;
  kind: string;
  ended_at: string;
  seconds: number;
  usd: number;
  share: number;
  phases: LifePhases;
};

/** Rejected lines with one reason, where a number that differs is `…`. `first`: an example. */
export type Reason = {reason: string; samples: number; first: {stream: string; line: number}};

export type Report = {
  page: RunPage;
  dataset: Dataset;
  lives: Life[];
  reasons: {most: Reason[]; others: number; unread: number};
};

export async function readReport(cloud: Cloud, name: string): Promise<Report | undefined> {
  const page = await readRunPage(cloud, name);
  if (!page.state) return undefined;
  const {streams, run} = page.state;
  return {
    page,
    dataset: datasetOf(streams, streams.length >= streamsOf(run)),
    lives: await readLives(cloud.store, name),
    reasons: await readReasons(cloud.objects, streams),
  };
}

function datasetOf(streams: Stream[], isWhole: boolean): Dataset {
  const lines = streams.map(({object, crc32c}) => `${object} ${crc32c}\n`);
  const digest = createHash('sha256').update(lines.join('')).digest('hex');
  return {streams, bytes: streams.reduce((sum, {size_bytes}) => sum + size_bytes, 0), digest, isWhole};
}

/** Ended lives that the run has paid for, the oldest first. */
export async function readLives(store: Store, run: string): Promise<Life[]> {
  const tpus = await store.query('workers', {limit: MOST_TPUS});
  const found: Life[] = [];
  await forEachConcurrently(tpus, async ({id}) => void found.push(...(await livesOf(store, id, run))));
  return found.sort((a, b) => a.ended_at.localeCompare(b.ended_at));
}

async function livesOf(store: Store, tpu: string, run: string): Promise<Life[]> {
  const order_by = {field: 'incarnation', direction: 'desc'} as const;
  const stored = await store.query(`${paths.worker(tpu)}/attempts`, {order_by, limit: MOST_LIVES});
  const attempts = attemptRecords.parseAll(stored, ({message}) => complain(message));
  return attempts.flatMap(attempt => {
    const {cause, cause_kind, ready_at, ended_at, gone_at, costs} = attempt as WorkerAttempt &
      Record<string, unknown>;
    const usd = (costs[run] ?? 0) + (costs[downloadsOf(run)] ?? 0);
    if (!(run in costs)) return [];
    const end = typeof gone_at === 'string' ? gone_at : ended_at;
    const seconds = ready_at === null ? 0 : Math.max(0, (Date.parse(end) - Date.parse(ready_at)) / 1000);
    const kind = typeof cause_kind === 'string' ? cause_kind : 'unknown';
    const ofTime = Object.entries(costs).filter(([key]) => !key.startsWith(downloadsOf('')));
    const all = ofTime.reduce((sum, [, usd]) => sum + usd, 0);
    const share = all > 0 ? (costs[run] ?? 0) / all : 0;
    const found = phases.safeParse(attempt.phases).data ?? {};
    return [{tpu, cause, kind, ended_at, seconds, usd, share, phases: found}];
  });
}

async function readReasons(objects: Objects, streams: readonly Stream[]): Promise<Report['reasons']> {
  const rejecting = streams.filter(({rejected_samples}) => rejected_samples > 0);
  const read = await readRejects(objects, rejecting, REJECTING);
  const groups = new Map<string, Omit<Reason, 'reason'> & {parts: string[]}>();
  for (const {stream, lines} of read)
    for (const {line, reason, samples} of lines) {
      const parts = reason.split(/(\d+)/);
      const key = reason.replace(/\d+/g, '#');
      const known = groups.get(key) ?? {parts, samples: 0, first: {stream, line}};
      const same = known.parts.map((part, index) => (part === parts[index] ? part : '…'));
      groups.set(key, {...known, parts: same, samples: known.samples + samples});
    }
  const all = [...groups.values()].sort((a, b) => b.samples - a.samples);
  const isUnread = ({lines}: Rejects) => lines.length === 0;
  return {
    most: all.slice(0, MOST_REASONS).map(({parts, ...others}) => ({...others, reason: parts.join('')})),
    others: all.slice(MOST_REASONS).reduce((sum, {samples}) => sum + samples, 0),
    unread: read.filter(isUnread).length + rejecting.length - read.length,
  };
}
