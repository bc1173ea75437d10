/** Meaning of the fields of workers and of their ended incarnations, for docs/firestore.md. */
import type {WorkerAttempt} from '../../../domain/worker/attempt.ts';
import type {Worker} from '../../../domain/worker/worker.ts';

export const workerFields: Record<keyof Worker, string> = {
  name: 'Name of the slot and of its TPU: `POOL-ZONE-SLOT`.',
  pool: 'Pool of the slot.',
  zone: 'Zone of the slot.',
  slot: 'Number of the slot in its zone, from 0.',
  phase:
    "The control plane's own state of the slot. Plans follow this word; [Operations](operations.md) explains each.",
  phase_since_at: 'Start of the phase.',
  ready_at: 'First time at which the node of this incarnation was READY. Billing starts here. Null before.',
  usd_per_hour: 'Price as known when this incarnation was requested, in dollars an hour. Null: unknown.',
  costs:
    'Dollars of this incarnation up to `costs_at`, by the run that paid. Keys with `_` are no runs: `_idle` has time that no run paid for.',
  costs_at: 'Time up to which `costs` is counted; null before the first count.',
  charged_to: 'The run that pays for the time of the TPU, also while it boots or waits. Null: no run pays.',
  incarnation:
    'Number of the node in this slot. Every create adds 1, so an older node and its messages are recognised.',
  born_at: 'Time of the request for this incarnation; null before.',
  hello_at: 'First heartbeat of the agent of this incarnation; null before.',
  host_secrets: 'SHA-256 of the secret of each host that has said hello, by the number of the host.',
  hosts: '`hostname` and `address` of each host, by its number, as the agents report them.',
  execs: 'Ids of commands that the hosts have not finished.',
  source_version: 'Version of the source of the pool that the TPU shall have.',
  source_report:
    'Last report about the source: `version`, `status`, `ran`, `error`, `at`. Null before a report.',
  bundle: 'SHA-256 of the bundle of this incarnation; null if unknown.',
  is_probe: 'True: the node was created to find out whether its zone boots TPUs that are heard.',
  provider_state: 'State of the node in the words of Cloud TPU, such as `READY`. Null without a node.',
  health: 'Health of the node in the words of Cloud TPU. Null without a node or a report.',
  queue_state: 'State of the queued resource in the words of Cloud TPU. Null without one.',
  provisioning: 'Kind of the request: `node` at once, or `queued-resource`. Null before the first request.',
  valid_until_at: 'Expiry of the queued request; null without one.',
  provider_since_at: 'Start of the present standing of the node and its queued resource; null if unknown.',
  unready_at: 'Last tick that found the node on its way and not READY, to within two minutes; else null.',
  missing_since_at:
    'Time of the first complete list without the node that was listed before. Null while it is listed.',
  symptoms: 'Symptoms that Cloud TPU reported since the node was READY, the newest last.',
  fault: 'Failure of the machine as its agent reported it: the machine is replaced. Else null.',
  heartbeat_at: 'Time of the last heartbeat; null before the first.',
  activity:
    "The agent's own word for its present work: `setup`, `idle`, `loading`, `compiling`, `running`, `uploading`. Null before.",
  work: 'The leased stream, `my-run/007`, or job, `job:ID`. Null without a lease.',
  epoch: 'Epoch of that lease; null without a lease.',
  claimed_at:
    'Time of the grant, or of the last heartbeat that claimed the lease. Null after a restart of the host.',
  drains: 'True: the next heartbeat tells the agent to finish its shard and to release the stream.',
  suspect: 'Stream that the TPU lost through silence or a fault: `work`, `epoch`, `total_shards`. Else null.',
  samples_done: 'Samples of the stream so far, as the agent reports. Null without work.',
  samples_total: 'Samples of the stream; null until the agent knows.',
  tokens_done: 'Tokens of the stream so far; null without work.',
  shards_done: 'Shards of the stream so far; null without work.',
  tokens_per_s: 'Tokens a second, as the agent reports; null if unknown.',
  waits_for: 'Host that does not answer the agent, its error, and the number of tries. Else null.',
  progress_at: 'Time of the last progress of the work. A heartbeat proves only that the agent lives.',
  blocked_until_at: 'No create before this time, because a create failed. Null: no wait.',
  asked_at:
    'Time of the last create or delete request. A request without effect is repeated. Null before the first.',
  recreate: 'True: a `recreate` or `delete` message wants this node deleted, and a tick does so.',
  held: 'True: a `delete` message empties the slot until a `recreate` message.',
  last_death: 'Why the last incarnation ended; null before the first end.',
  last_error: 'Last error of the slot, such as a refused create. Null without one.',
  said: 'Publish time of the last message about the slot, by field.',
  created_at: 'Time at which the document was written first.',
  updated_at: 'Time of the last change of the document.',
};

export const attemptFields: Record<keyof WorkerAttempt, string> = {
  worker: 'Name of the slot.',
  incarnation: 'Number of the incarnation; also the document id, with six digits.',
  cause: 'Why the incarnation ended, as a sentence part.',
  cause_kind: 'Why it ended, as one word for filters; `not-needed` without a death.',
  last_phase: 'Phase before the end.',
  provisioning: 'Kind of the request for the node.',
  provider_state: 'Last state of the node; null without a node.',
  queue_state: 'Last state of the queued resource; null without one.',
  health: 'Last health of the node; null if unknown.',
  symptoms: 'Last symptoms of the node.',
  work: 'The leased stream or job at the end; null without a lease.',
  log: 'Address of the log of the agent.',
  ready_at: 'First time at which the node was READY; null if it never was.',
  ended_at: 'Time at which the control plane ended the incarnation.',
  gone_at: 'Time at which the node was gone. Billing ends here. Absent before.',
  expire_at: 'Firestore deletes the document some time after this: 90 days after the end.',
  costs: 'Dollars of the incarnation by the run that paid; keys with `_` are no runs.',
  cost_usd: 'Sum of `costs`.',
};
