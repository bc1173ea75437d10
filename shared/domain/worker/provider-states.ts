import type {Symptom} from '../records/worker.ts';

/** The request in the queue from which a node is created. `initiator`: who caused its state, USER or SERVICE. */
export type Queued = {
  state: string;
  initiator: string;
  /** Reason of a FAILED request, and its kind of refusal. */
  error: {kind: Refusal; message: string} | null;
  /** Expiry of a request that has produced no node yet; null if Cloud TPU names no time. */
  valid_until_at: string | null;
};

/** Why a zone gives no node: a stock-out, our quota, our permissions, a policy, an invalid request, an unknown answer, or a transient error. */
export type Refusal =
  | ('no-capacity' | 'quota' | 'permission' | 'policy')
  | ('bad-request' | 'unknown' | 'transient');

export type Shown = {provider_state: string | null; health: string | null; queue_state: string | null};

/** `mending`: Google repairs the node, and its agent may be silent. `over`: the node will never work again. */
export type NodeStanding = 'coming' | 'up' | 'mending' | 'over';

const NODE_STANDINGS: Record<string, NodeStanding> = {
  STATE_UNSPECIFIED: 'coming',
  UNKNOWN: 'coming',
  CREATING: 'coming',
  STARTING: 'coming',
  UNHIDING: 'coming',
  READY: 'up',
  // An instance of Compute Engine. RUNNING says that the machine is on, and nothing about its chips or its boot.
  UNDEFINED_STATUS: 'coming',
  PENDING: 'coming',
  PROVISIONING: 'coming',
  STAGING: 'coming',
  RUNNING: 'up',
  RESTARTING: 'mending',
  REIMAGING: 'mending',
  REPAIRING: 'mending',
};

/**
 * A preemption has many names: PREEMPTED, TERMINATED, STOPPING, STOPPED, DELETING, HIDING and HIDDEN are all `over`, and so are PENDING_STOP,
 * SUSPENDING, SUSPENDED and DEPROVISIONING of an instance.
 * UNHEALTHY_MAINTENANCE ("will resume running once rescheduled") is the only health value that changes the standing.
 * TIMEOUT and UNHEALTHY_TENSORFLOW add nothing to a silent or hanging agent, and a stream can cause them.
 */
export function nodeStanding({provider_state, health}: Shown): NodeStanding | null {
  if (provider_state === null) return null;
  const standing = NODE_STANDINGS[provider_state] ?? 'over';
  return standing === 'up' && health === 'UNHEALTHY_MAINTENANCE' ? 'mending' : standing;
}

/** True for a node that exists and costs money, whatever its health. */
export const isUp = (state: string | null) => state !== null && NODE_STANDINGS[state] === 'up';

/** `waiting`: costs nothing. `given`: the node exists or is being created. `over`: the resource is being deleted or must be. */
export type QueueStanding = 'waiting' | 'given' | 'over';

const QUEUE_STANDINGS: Record<string, QueueStanding> = {
  STATE_UNSPECIFIED: 'waiting',
  CREATING: 'waiting',
  ACCEPTED: 'waiting',
  WAITING_FOR_RESOURCES: 'waiting',
  PROVISIONING: 'given',
  ACTIVE: 'given',
};

/** SUSPENDING, SUSPENDED, FAILED and DELETING are `over`: such a request never returns to the queue by itself. */
export function queueStanding({queue_state}: Pick<Shown, 'queue_state'>): QueueStanding | null {
  return queue_state === null ? null : (QUEUE_STANDINGS[queue_state] ?? 'over');
}

/** Symptoms in plain words. MESH_BUILD_FAIL is a failure of the machine, so it does not count against the stream. */
const SYMPTOMS: Record<string, string> = {
  MESH_BUILD_FAIL: 'its chips cannot find each other',
  LOW_MEMORY: 'its VM is short of memory',
  OUT_OF_MEMORY: 'its runtime was out of memory',
  HBM_OUT_OF_MEMORY: 'its chips were out of memory',
  EXECUTE_TIMED_OUT: 'a program did not end in time',
  PROJECT_ABUSE: 'Google believes that the project is abused: read its notices',
};

export function symptomText({symptom, details}: Symptom): string {
  const meaning = SYMPTOMS[symptom] ?? 'a symptom that is new to us';
  return `${symptom}, ${meaning}${details ? ` (${details.slice(0, 200).toWellFormed()})` : ''}`;
}

/** True if the machine could not have done any work. */
export function isBrokenBy(symptoms: readonly Symptom[]): boolean {
  return symptoms.some(({symptom}) => symptom === 'MESH_BUILD_FAIL');
}

/**
 * Messages of libtpu, JAX and run_job.py on a host without working chips, or with chips that are still in use.
 * Another host can do the work, so the stream is not charged.
 */
const BAD_HOST = [
  "Couldn't open iommu group",
  'open(/dev/vfio',
  'Failed to initialize TPU system',
  'TPU initialization failed',
  'No accelerator found',
  'TPU is already in use by process',
  'Device or resource busy',
  'START_SESSION failed',
  'TPU not available',
];

export function isBadHost(reason: string): boolean {
  return BAD_HOST.some(words => reason.includes(words));
}
