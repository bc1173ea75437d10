/** Hosts of a slice: a node is one worker, and its hosts are numbered from 0. */
import type {Worker} from '../records/worker.ts';

/** The host that reports the work of its node. Every host sends its own heartbeats. */
export const FIRST_HOST = 0;

/** Port on which host 0 coordinates the JAX processes; JAX on TPUs uses the same default. */
const COORDINATOR_PORT = 8482;

type Slice = Pick<Worker, 'host_count' | 'hosts'>;

/** True if the node of the worker has a host of this number. Every node has host 0. */
export function hasHost(worker: Pick<Worker, 'host_count'> | undefined, host: number): boolean {
  return host < (worker?.host_count ?? 1);
}

export function hostsOf({host_count}: Pick<Worker, 'host_count'>): number[] {
  return Array.from({length: host_count}, (_, host) => host);
}

export const hostText = (host: number, hosts: number) => `host ${host} of ${hosts}`;

/** The subject of a sentence about a host: a node of one host is `it`. */
export function subjectOf({host_count}: Pick<Worker, 'host_count'>, host: number): string {
  return host_count === 1 ? 'it' : `host ${host}`;
}

/** The host whose last message is the oldest, and the time of that message. Null: it has sent nothing since its node was READY. */
export function quietestHost(worker: Slice & Pick<Worker, 'heartbeat_at'>): {
  host: number;
  at: string | null;
} {
  const words = hostsOf(worker).map(host => ({
    host,
    at: host === FIRST_HOST ? worker.heartbeat_at : (worker.hosts[host]?.heartbeat_at ?? null),
  }));
  return words.reduce((oldest, word) => ((word.at ?? '') < (oldest.at ?? '') ? word : oldest));
}

/** Hosts other than host 0 whose agent has sent nothing since their boot. */
export function bootingHosts(worker: Slice): number[] {
  const isUp = (host: number) => ![null, undefined, 'setup'].includes(worker.hosts[host]?.phase);
  return hostsOf(worker).filter(host => host !== FIRST_HOST && !isUp(host));
}

/** Hosts that cannot begin an attempt yet. Host 0 is ready, because it asks for the attempt. */
export function unreadyHosts(worker: Slice & Pick<Worker, 'host_secrets'>): number[] {
  const isReady = (host: number) =>
    worker.host_secrets[host] !== undefined && worker.hosts[host]?.phase === 'idle';
  return hostsOf(worker).filter(host => host !== FIRST_HOST && !isReady(host));
}

/** The hosts without their messages, for a repaired node, which boots from scratch. */
export function withoutWords({hosts}: Slice): Slice['hosts'] {
  const silent = {heartbeat_at: null, phase: null};
  return Object.fromEntries(Object.entries(hosts).map(([host, known]) => [host, {...known, ...silent}]));
}

/**
 * The part of an order by which the hosts of all slices of an attempt find each other: addresses slice by slice. An address is empty until
 * its host has reported it.
 */
export function sliceOrder(members: readonly Slice[], slice: number, host: number) {
  const addresses = members.flatMap(member => hostsOf(member).map(each => member.hosts[each]?.address ?? ''));
  const hosts = members[slice]?.host_count ?? 1;
  return {host, hosts, addresses, port: COORDINATOR_PORT, slice, slices: members.length};
}
