/** Hosts of a slice: a node is one worker, and its hosts are numbered from 0. */
import type {Worker} from './worker.ts';

/** The host that speaks for the work of its node. Every host speaks for its own life. */
export const FIRST_HOST = 0;

/** Port on which the process of host 0 coordinates JAX, as JAX takes it on TPUs. */
const COORDINATOR_PORT = 8482;

/** True if the node of the worker has a host of this number. Every node has host 0. */
export function hasHost(worker: Pick<Worker, 'host_count'> | undefined, host: number): boolean {
  return host < (worker?.host_count ?? 1);
}

/** Numbers of all hosts of the worker. */
export function hostsOf({host_count}: Pick<Worker, 'host_count'>): number[] {
  return Array.from({length: host_count}, (_, host) => host);
}

/** The part of an order by which the hosts of a slice find each other. An address is empty before its host has said it. */
export function sliceOrder(worker: Pick<Worker, 'host_count' | 'hosts'>, host: number) {
  const addresses = hostsOf(worker).map(each => worker.hosts[each]?.address ?? '');
  return {host, hosts: worker.host_count, addresses, port: COORDINATOR_PORT};
}
