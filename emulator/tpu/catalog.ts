import {ACCELERATORS, hostsOfType, RUNTIME_VERSIONS} from '../../shared/domain/fleet/accelerators.ts';

/** Most hosts of a TPU: each is a process group of this machine. */
export const LOCAL_HOSTS = 4;
export const acceleratorTypes = ACCELERATORS.filter(type => hostsOfType(type) <= LOCAL_HOSTS);

export const runtimeVersions = [...RUNTIME_VERSIONS];

/** Numbers of Node.State and Node.Health in the protocol buffer. */
export const stateNumbers = {CREATING: 1, READY: 2, DELETING: 5, PREEMPTED: 11} as const;
export const healthNumbers = {HEALTHY: 1} as const;

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
