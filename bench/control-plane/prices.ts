/** List prices of Google Cloud, and the cost of counted operations. */
import type {BucketUsage} from './bucket.ts';
import type {Usage} from './meter.ts';

/**
 * Dollars, us-central1, written down from memory on 2026-11-21 and not checked against the price pages. Free tiers are left out.
 */
export const PRICES = {
  firestore_read: 0.03 / 100_000,
  firestore_write: 0.09 / 100_000,
  firestore_delete: 0.01 / 100_000,
  request: 0.4 / 1e6,
  vcpu_s: 0.000024,
  gib_s: 0.0000025,
  class_a: 0.005 / 1000,
  class_b: 0.0004 / 1000,
  /** Of messages and events. Each is billed once in and once out. */
  pubsub_gib: 40 / 1024,
  logging_gib: 0.5,
  scheduler_job_month: 0.1,
};

export const HOURS_A_MONTH = 730;
const GIB = 1024 ** 3;
/** Memory of a function. */
const FUNCTION_GIB = 0.5;
const MESSAGE_BYTES = 2048;

export type Counted = {usage: Usage; bucket: BucketUsage};

/** `busy_s`: seconds in which the calls keep a whole vCPU. `requests`: calls of functions. `messages`: how many of them are messages. */
export type Load = {busy_s: number; requests: number; messages: number; log_bytes: number};

export type Parts = Record<'firestore' | 'storage' | 'requests' | 'compute' | 'messages' | 'logs', number>;

/** Dollars of counted operations. */
export function costOf({usage, bucket}: Counted, {busy_s, requests, messages, log_bytes}: Load): Parts {
  return {
    firestore:
      usage.reads * PRICES.firestore_read +
      // Each event of the timeline is deleted after its time.
      usage.writes * (PRICES.firestore_write + PRICES.firestore_delete / 2) +
      usage.deletes * PRICES.firestore_delete,
    storage: bucket.class_a * PRICES.class_a + bucket.class_b * PRICES.class_b,
    requests: requests * PRICES.request,
    compute: busy_s * (PRICES.vcpu_s + FUNCTION_GIB * PRICES.gib_s),
    messages: (messages * 2 * MESSAGE_BYTES * PRICES.pubsub_gib) / GIB,
    logs: (log_bytes * PRICES.logging_gib) / GIB,
  };
}

export function sumOf(parts: Parts): number {
  return Object.values(parts).reduce((sum, usd) => sum + usd, 0);
}

export type IdleMonth = {
  ticks: number;
  ticks_usd: number;
  resyncs: number;
  resyncs_usd: number;
  scheduler_usd: number;
  usd: number;
};

/** Assumed seconds of an idle tick and of an idle resync: both wait for answers for most of that time. */
const IDLE_TICK_S = 1;
const IDLE_RESYNC_S = 10;
const LOG_BYTES = 1000;

/** A month without work: a tick each minute, and a resync of the bucket every `audit_s` seconds. */
export function idleMonthOf(tick: Counted, resync: Counted, audit_s: number): IdleMonth {
  const ticks = HOURS_A_MONTH * 60;
  const resyncs = Math.round((HOURS_A_MONTH * 3600) / audit_s);
  const load = {requests: 1, messages: 1, log_bytes: LOG_BYTES};
  const ticks_usd = ticks * sumOf(costOf(tick, {...load, busy_s: IDLE_TICK_S}));
  const resyncs_usd = resyncs * sumOf(costOf(resync, {...load, busy_s: IDLE_RESYNC_S}));
  const scheduler_usd = PRICES.scheduler_job_month;
  return {
    ...{ticks, ticks_usd, resyncs, resyncs_usd, scheduler_usd},
    usd: ticks_usd + resyncs_usd + scheduler_usd,
  };
}
