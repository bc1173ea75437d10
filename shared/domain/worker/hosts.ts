import type {Worker} from './worker.ts';

/** Hosts of a node: every supported accelerator has one. */
const HOSTS = 1;

/** True if a node has a host of this number. The first host has number 0. */
export function hasHost(host: number): boolean {
  return host < HOSTS;
}

/** Numbers of the hosts of a worker's node. */
export function hostsOf(_worker: Pick<Worker, 'name'>): number[] {
  return Array.from({length: HOSTS}, (_, host) => host);
}
