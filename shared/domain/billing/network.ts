/**
 * Traffic between the region of a TPU and the region of the bucket. A stream is billed at each grant, and a shard when it is counted, both at
 * the price of the grant.
 */
import {regionOf} from '../names.ts';
import type {Run} from '../records/run.ts';
import type {Stream} from '../records/stream.ts';
import {networkBytePrice} from './unit-prices.ts';

/** Region of the bucket; null where the deployment does not know it, such as on a local cloud. */
export type BucketRegion = string | null;

export function bytePrice(zone: string, region: BucketRegion): number {
  return region === null ? 0 : networkBytePrice(regionOf(zone), region);
}

export function crossRegionProblem(
  {allow_cross_region, run}: Pick<Run, 'allow_cross_region' | 'run'>,
  zones: readonly string[],
  region: BucketRegion,
): string | undefined {
  const remote = region === null ? [] : zones.filter(zone => regionOf(zone) !== region);
  if (allow_cross_region || remote.length === 0) return undefined;
  const most = Math.max(...remote.map(zone => bytePrice(zone, region))) * 1024 ** 3;
  return `${remote.join(', ')} and the bucket in ${region} are in different regions, and each GiB between them costs up to $${most.toFixed(2)}; scale the pool to zones of ${region}, or configure run "${run}" with allow_cross_region true`;
}

/** The stream after a grant to a TPU in the zone: the TPU reads the stream once. */
export function withRead<S extends Stream>(stream: S, zone: string, region: BucketRegion): S {
  return withTraffic({...stream, network_usd_per_byte: bytePrice(zone, region)}, stream.size_bytes);
}

export function withTraffic<S extends Stream>(stream: S, bytes: number): S {
  const {network_usd_per_byte, network_bytes, network_usd} = stream;
  if (network_usd_per_byte === 0) return stream;
  const all = Math.min(network_bytes + bytes, Number.MAX_SAFE_INTEGER);
  return {...stream, network_bytes: all, network_usd: network_usd + bytes * network_usd_per_byte};
}

export const TRAFFIC = ['network_bytes', 'network_usd'] as const;
export type Traffic = Record<(typeof TRAFFIC)[number], number>;

/** The run with its traffic, and the dollars that are new. Traffic never shrinks, because a slow tick may know less than a later one. */
export function withNetwork(run: Run, traffic: Traffic): {run: Run; usd: number} {
  const usd = traffic.network_usd - run.network_usd;
  return usd > 0 ? {run: {...run, ...traffic}, usd} : {run, usd: 0};
}

/** Dollars that the run has spent on network: traffic of its streams, and downloads of its TPUs. */
export function networkOf({network_usd, download_usd}: Pick<Run, 'network_usd' | 'download_usd'>): number {
  return network_usd + download_usd;
}

export function capped(run: Pick<Run, 'cost_usd' | 'network_usd' | 'download_usd'>): number {
  return run.cost_usd + networkOf(run);
}
