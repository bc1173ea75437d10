/**
 * What Cloud TPU's words mean: every Node state, health value, symptom and QueuedResource state of its v2 API has its place here.
 * A word that is new to us is no sign of life.
 */

/** Free evidence about a node that Cloud TPU collects by itself. */
export type Symptom = {symptom: string; details: string; created_at: string};

/** The request in the queue that a node comes from. `initiator`: who brought it into its state, USER or SERVICE. */
export type Queued = {
  state: string;
  initiator: string;
  /** Why it FAILED, and what kind of refusal that is. */
  error: {kind: Refusal; message: string} | null;
  /** When it is over if it has not brought a node by then; null where Cloud TPU names no instant. */
  valid_until_at: string | null;
};

/** Why a zone gives no node: it has none, it gives us no more, it does not let us, or it cannot read what we ask for. */
export type Refusal = 'no-capacity' | 'quota' | 'permission' | 'bad-request' | 'transient';

/** What of it all stands in a worker's document. */
export type Shown = {
  /** The node's; null while there is none. */
  provider_state: string | null;
  health: string | null;
  /** The queued resource's; null where there is none. */
  queue_state: string | null;
};

/** `mending`: Google works on it, and its agent may be silent meanwhile. `over`: there is nothing more to come from it. */
export type NodeStanding = 'coming' | 'up' | 'mending' | 'over';

const NODE_STANDINGS: Record<string, NodeStanding> = {
  STATE_UNSPECIFIED: 'coming',
  UNKNOWN: 'coming',
  CREATING: 'coming',
  STARTING: 'coming',
  UNHIDING: 'coming',
  READY: 'up',
  RESTARTING: 'mending',
  REIMAGING: 'mending',
  REPAIRING: 'mending',
};

/**
 * PREEMPTED, TERMINATED, STOPPING, STOPPED, DELETING, HIDING and HIDDEN are all `over`, because a preemption shows itself under
 * many names. Of the health values only UNHEALTHY_MAINTENANCE ("will resume running once rescheduled") changes anything:
 * TIMEOUT and UNHEALTHY_TENSORFLOW say no more than an agent that is silent or stands still, and a stream can be their cause.
 */
export function nodeStanding({provider_state, health}: Shown): NodeStanding | null {
  if (provider_state === null) return null;
  const standing = NODE_STANDINGS[provider_state] ?? 'over';
  return standing === 'up' && health === 'UNHEALTHY_MAINTENANCE' ? 'mending' : standing;
}

/** `waiting` costs nothing; `given`: its node is there or is being made; `over`: it must be deleted, or is. */
export type QueueStanding = 'waiting' | 'given' | 'over';

const QUEUE_STANDINGS: Record<string, QueueStanding> = {
  STATE_UNSPECIFIED: 'waiting',
  CREATING: 'waiting',
  ACCEPTED: 'waiting',
  WAITING_FOR_RESOURCES: 'waiting',
  PROVISIONING: 'given',
  ACTIVE: 'given',
};

/** SUSPENDING, SUSPENDED, FAILED and DELETING are `over`: none of them is ever put into the queue again by itself. */
export function queueStanding({queue_state}: Pick<Shown, 'queue_state'>): QueueStanding | null {
  return queue_state === null ? null : (QUEUE_STANDINGS[queue_state] ?? 'over');
}

/** What its texts mean for a person; the first one also means that the stream is not to blame for what its agent does. */
const SYMPTOMS: Record<string, string> = {
  MESH_BUILD_FAIL: 'its chips do not find each other',
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

/** Whether this machine could not have done any work, whatever it was given. */
export function isBrokenBy(symptoms: readonly Symptom[]): boolean {
  return symptoms.some(({symptom}) => symptom === 'MESH_BUILD_FAIL');
}

/**
 * What libtpu and JAX say when a host does not let go of its chips, or has none that work. Another host will do, and whoever
 * was given work there is not to blame.
 */
const BAD_HOST = [
  "Couldn't open iommu group",
  'open(/dev/vfio',
  'Failed to initialize TPU system',
  'TPU initialization failed',
  'No accelerator found',
];

export function isBadHost(reason: string): boolean {
  return BAD_HOST.some(words => reason.includes(words));
}
