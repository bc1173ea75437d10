import {chipsOf} from '../../shared/domain/billing/prices.ts';
import {ONE_HOST, RUNTIME_VERSIONS} from '../../shared/domain/fleet/accelerators.ts';

/** Types of up to four hosts: each host is a process group of this machine. */
export const acceleratorTypes = [
  ...ONE_HOST,
  ...['v2-16', 'v2-32', 'v3-16', 'v3-32', 'v4-16', 'v4-32', 'v5litepod-16', 'v5p-16', 'v5p-32', 'v6e-16'],
];

/** Chips of each host of a slice of several hosts. */
export const CHIPS_OF_A_HOST = 4;

export function hostsOfType(type: string): number {
  return ONE_HOST.includes(type) ? 1 : (chipsOf(type)?.chips ?? 0) / CHIPS_OF_A_HOST;
}

export const runtimeVersions = [...RUNTIME_VERSIONS];

/** Numbers of Node.State and Node.Health in the protocol buffer. */
export const stateNumbers = {CREATING: 1, READY: 2, DELETING: 5, PREEMPTED: 11} as const;
export const healthNumbers = {HEALTHY: 1} as const;

export type NodeState = keyof typeof stateNumbers;

/** Numbers of QueuedResourceState.State and QueuedResourceState.StateInitiator. */
export const queueNumbers = {
  ...{ACCEPTED: 2, PROVISIONING: 3, FAILED: 4, DELETING: 5, ACTIVE: 6, SUSPENDING: 7, SUSPENDED: 8},
  WAITING_FOR_RESOURCES: 9,
} as const;
export const initiatorNumbers = {USER: 1, SERVICE: 2} as const;

export type QueueState = keyof typeof queueNumbers;

/** True for a client that expects enums as numbers. Google's Node clients over REST send `$alt=json;enum-encoding=int`. */
export function wantsNumbers(query: URLSearchParams): boolean {
  return (query.get('$alt') ?? query.get('alt') ?? '').includes('enum-encoding=int');
}
