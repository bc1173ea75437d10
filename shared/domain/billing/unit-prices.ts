/** Dollars of everything beside TPUs. */

const GIB = 1024 ** 3;

/** Day on which a person wrote this table from memory. Nobody has checked it against Google's price pages. */
export const UNIT_PRICES_OF = '2026-11-25';

/** Prices of us-central1. Free tiers are left out. */
export const UNIT_PRICES = {
  /** Cloud Storage: a month of a byte, and one operation. An insert or a list is of class A, a read of class B. */
  storage_byte_month: 0.02 / GIB,
  class_a: 0.005 / 1000,
  class_b: 0.0004 / 1000,
  /** Cloud NAT: a byte, and an hour of a gateway with 32 nodes or more and its address. */
  nat_byte: 0.045 / GIB,
  nat_hour: 0.044 + 0.005,
  firestore_read: 0.03 / 100_000,
  firestore_write: 0.09 / 100_000,
  firestore_delete: 0.01 / 100_000,
  /** Cloud Run: a request, and a second of a vCPU and of a GiB. */
  request: 0.4 / 1e6,
  vcpu_s: 0.000024,
  gib_s: 0.0000025,
  /** For messages and events, each billed once in and once out. */
  pubsub_gib: 40 / 1024,
  logging_gib: 0.5,
  scheduler_job_month: 0.1,
  /** Functions and Firestore for an hour of a TPU at work, and for a shard: `npm run bench:control-plane` of 2026-11-23. */
  control_tpu_hour: 0.00028,
  control_shard: 0.0000053,
};

/** Dollars of a GiB between two regions of a continent, and to another continent. The more expensive end counts. */
const NETWORK_GIB: Record<string, [within: number, beyond: number]> = {
  us: [0.02, 0.05],
  northamerica: [0.02, 0.05],
  europe: [0.02, 0.05],
  asia: [0.08, 0.08],
  australia: [0.1, 0.1],
  me: [0.11, 0.11],
  africa: [0.11, 0.11],
  southamerica: [0.14, 0.14],
};
const CONTINENT_OF: Record<string, string> = {northamerica: 'us'};

/** Dollars of a byte between two regions. Unknown regions have the highest price: a budget must not be exceeded. */
export function networkBytePrice(from: string, to: string): number {
  if (from === to) return 0;
  const continents = [from, to].map(region => region.split('-', 1)[0] ?? '');
  const [one, other] = continents.map(continent => CONTINENT_OF[continent] ?? continent);
  const highest = Math.max(...Object.values(NETWORK_GIB).flat());
  const prices = continents.map(continent => NETWORK_GIB[continent]?.[one === other ? 0 : 1] ?? highest);
  return Math.max(...prices) / GIB;
}
