/** List prices of Google Cloud, and the cost of counted operations. */
import {LIST_PRICES} from '../../shared/domain/billing/list-prices.ts';
import {UNIT_PRICES} from '../../shared/domain/billing/unit-prices.ts';
import type {BucketUsage} from './bucket.ts';
import {type Check, checked, LONGEST_QUIET_TICK_S} from './limits.ts';
import type {Usage} from './meter.ts';
import {configOf, type Size} from './scene.ts';
import type {Measured} from './scene-work.ts';

const HOURS_A_MONTH = 730;
const GIB = 1024 ** 3;
/** Memory of a function. */
const FUNCTION_GIB = 0.5;
const MESSAGE_BYTES = 2048;

type Counted = {usage: Usage; bucket: BucketUsage};

/** `busy_s`: seconds in which the calls keep a whole vCPU. `requests`: calls of functions. `messages`: how many of them are messages. */
type Load = {busy_s: number; requests: number; messages: number; log_bytes: number};

type Parts = Record<'firestore' | 'storage' | 'requests' | 'compute' | 'messages' | 'logs', number>;

/** Dollars of counted operations. */
function costOf({usage, bucket}: Counted, {busy_s, requests, messages, log_bytes}: Load): Parts {
  return {
    firestore:
      usage.reads * UNIT_PRICES.firestore_read +
      // Each event of the timeline is deleted after its time.
      usage.writes * (UNIT_PRICES.firestore_write + UNIT_PRICES.firestore_delete / 2) +
      usage.deletes * UNIT_PRICES.firestore_delete,
    storage: bucket.class_a * UNIT_PRICES.class_a + bucket.class_b * UNIT_PRICES.class_b,
    requests: requests * UNIT_PRICES.request,
    compute: busy_s * (UNIT_PRICES.vcpu_s + FUNCTION_GIB * UNIT_PRICES.gib_s),
    messages: (messages * 2 * MESSAGE_BYTES * UNIT_PRICES.pubsub_gib) / GIB,
    logs: (log_bytes * UNIT_PRICES.logging_gib) / GIB,
  };
}

function sumOf(parts: Parts): number {
  return Object.values(parts).reduce((sum, usd) => sum + usd, 0);
}

const IDLE_TICK = 'tick, idle';
const IDLE_RESYNC = 'resync, idle';
/** Assumed seconds of an idle tick and of an idle resync: both wait for answers for most of that time. */
const IDLE_TICK_S = 1;
const IDLE_RESYNC_S = 10;
const LOG_BYTES = 1000;

/** Each worker beats once a minute, stores 12 shards and finishes one stream an hour, and is lost every ten hours. */
const HOUR = {heartbeats: 60, shards: 12, streams: 1, lives: 0.1};
/** A request keeps a vCPU and its memory for so long at least. */
const LEAST_BUSY_S = 0.01;
/**
 * Ticks that wakes begin one after another, as shared/control-plane/calls/tick-queue.ts has it. Their request stays open. A tick takes as
 * long as a quiet tick may take: the number of ticks depends on no machine.
 */
const CYCLE_S = LONGEST_QUIET_TICK_S + Math.max(10, 5 * LONGEST_QUIET_TICK_S);

/** Scenes whose counts the costs need. */
export const PRICED = [IDLE_TICK, IDLE_RESYNC, 'lease', 'release', 'stream dropped', 'resync'];

type Event = {what: string; an_hour: number; is_message: boolean; is_logged: boolean; busy_s?: number};

/** Dollars of an idle month, and percents of the spot price of the TPUs. */
const MOST_MONTH_USD = 3;
const MOST_HOUR_PERCENT = 0.1;

export type Cost = {text: string; check: Check};

/** The costs of an idle month and of an hour at work, each if its scenes are measured. */
export function costsOf(rows: readonly Measured[], size: Size): Cost[] {
  const {audit_s} = configOf(size);
  const counted = new Map(rows.map(row => [row.what, row]));
  const [tick, resync] = [counted.get(IDLE_TICK), counted.get(IDLE_RESYNC)];
  const month = tick && resync ? [idleMonth(tick, resync, audit_s)] : [];
  const events = eventsOf(size.workers, audit_s, counted);
  const hour = events.every(({what}) => counted.has(what)) ? [hourAtWork(events, counted, size.workers)] : [];
  return [...month, ...hour];
}

/** A month without work: a tick each minute, and a resync of the bucket every `audit_s` seconds. */
function idleMonth(tick: Counted, resync: Counted, audit_s: number): Cost {
  const ticks = HOURS_A_MONTH * 60;
  const resyncs = Math.round((HOURS_A_MONTH * 3600) / audit_s);
  const load = {requests: 1, messages: 1, log_bytes: LOG_BYTES};
  const ticks_usd = ticks * sumOf(costOf(tick, {...load, busy_s: IDLE_TICK_S}));
  const resyncs_usd = resyncs * sumOf(costOf(resync, {...load, busy_s: IDLE_RESYNC_S}));
  const job_usd = UNIT_PRICES.scheduler_job_month;
  const sum = ticks_usd + resyncs_usd + job_usd;
  const usd = (value: number) => `$${value.toFixed(2)}`;
  const text = `An idle month costs ${usd(sum)}: ${usd(ticks_usd)} for ${ticks.toLocaleString('en')} ticks, ${usd(resyncs_usd)} for ${resyncs.toLocaleString('en')} resyncs of the bucket, ${usd(job_usd)} for the job of the Scheduler`;
  return {text, check: checked('an idle month', 'dollars', sum, MOST_MONTH_USD)};
}

/** Events in an hour of `n` workers. The ticks are the Scheduler's, or as many as the wakes of the other events cause. */
function eventsOf(n: number, audit_s: number, counted: ReadonlyMap<string, Measured>): Event[] {
  const events = [
    {what: 'heartbeat', an_hour: n * HOUR.heartbeats, is_message: false, is_logged: false},
    {what: 'shard', an_hour: n * HOUR.shards, is_message: true, is_logged: true},
    {what: 'lease', an_hour: n * (HOUR.streams + HOUR.lives), is_message: false, is_logged: true},
    {what: 'release', an_hour: n * (HOUR.streams + HOUR.lives), is_message: false, is_logged: true},
    {what: 'stream dropped', an_hour: n * HOUR.streams, is_message: true, is_logged: true},
  ];
  const wakes = events.reduce(
    (sum, {what, an_hour}) => sum + an_hour * (counted.get(what)?.published ?? 0),
    0,
  );
  const areTicksWoken = wakes > 3600 / CYCLE_S;
  return [
    ...events,
    {
      ...{what: 'tick, nothing changed', is_message: true, is_logged: true},
      an_hour: areTicksWoken ? 3600 / CYCLE_S : 60,
      busy_s: areTicksWoken ? CYCLE_S : LONGEST_QUIET_TICK_S,
    },
    {what: 'resync', an_hour: 3600 / audit_s, is_message: true, is_logged: true},
  ];
}

/** Each message that an event publishes is a request more. */
function hourAtWork(events: readonly Event[], counted: ReadonlyMap<string, Measured>, workers: number): Cost {
  const costs = events.map(({what, an_hour, is_message, is_logged, busy_s}) => {
    const one = counted.get(what);
    if (!one) throw new Error(`There is no measurement of ${what}`);
    const {seconds, published} = one;
    const messages = (is_message ? 1 : 0) + published;
    const load = {requests: 1 + published, messages, log_bytes: is_logged ? LOG_BYTES : 0};
    const parts = costOf(one, {...load, busy_s: busy_s ?? Math.max(LEAST_BUSY_S, seconds)});
    return {what, an_hour, usd: sumOf(parts) * an_hour};
  });
  const total = costs.reduce((sum, {usd}) => sum + usd, UNIT_PRICES.scheduler_job_month / HOURS_A_MONTH);
  const tpus = workers * (LIST_PRICES['v5litepod@us-central1']?.spot_usd ?? Number.NaN);
  const percent = (100 * total) / tpus;
  const lines = [
    `An hour of ${workers} workers costs $${total.toFixed(2)}, ${percent.toFixed(4)} % of the $${tpus.toFixed(0)} of their v5litepod-1 on spot in us-central1:`,
    ...costs.map(
      ({what, an_hour, usd}) =>
        `  ${what.padEnd(24)} ${an_hour.toFixed(0).padStart(8)}/h  $${usd.toFixed(3)}`,
    ),
  ];
  const check = checked('an hour at work', 'percent of the spot price', percent, MOST_HOUR_PERCENT);
  return {text: lines.join('\n'), check};
}
