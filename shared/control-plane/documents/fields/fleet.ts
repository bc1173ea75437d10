/** Meaning of the fields of pools and zones, for docs/firestore.md. */

import type {Pool} from '../../../domain/fleet/pool.ts';
import type {Zone} from '../../../domain/zone/placement.ts';

const BOOTS =
  'Breaker of creates: `unheard` boots in a row and the last at `unheard_at`; `stopped_at` is the start of a stop, `tried_at` its last try, `bundle` the bundle of these nodes.';

export const poolFields: Record<keyof Pool, string> = {
  pool: 'Name of the pool.',
  accelerator: 'Type of each TPU, such as `v5litepod-8`.',
  runtime_version: 'Software version of the TPU VMs.',
  spot: 'True: the TPUs are Spot VMs, which Google may preempt.',
  provisioning:
    '`node`: asks for nodes at once. `queued-resource`: in the queue. `auto`: in the queue where a zone was sold out lately.',
  zones: 'Zones of the pool, in order.',
  workers_per_zone: 'Slots in each zone.',
  version: 'Count of messages that changed the pool. At 0 the settings of the deployment count.',
  said: 'Publish time of the last message about each field.',
  budget_usd: 'Dollars that all TPUs of the pool may ever cost. Null: no limit.',
  spent_usd: 'Dollars of the incarnations that have ended.',
  poll_s: 'Seconds until a TPU without work asks again, plus up to a quarter.',
  source:
    'Code of the jobs of the pool: a `bundle`, or a `repo` with a `branch`, `pr` or `commit`. Null: none.',
  environment:
    'Preparation of a host before jobs: `jax_version`, `setup_script`, `config_file`, `ramfs_dir`.',
  source_version: 'Count of messages that changed the source or the environment.',
  boots: BOOTS,
};

export const zoneFields: Record<keyof Zone, string> = {
  zone: 'Name of the zone.',
  pool: "Pool whose view this is. Null: the deployment's own pool.",
  blocked_until_at: 'No create before this time, because the zone refused a node. Null: no pause.',
  blocked_reason: 'Why the zone refused; null without a refusal.',
  sold_out_at: 'Time of the last stock-out. Null after the zone gave a node.',
  losses:
    'Lost nodes, the newest last: `ended_at`, and `lived_s` in seconds. Nodes that were not needed do not count.',
  creates: 'Requests for nodes in the last hour, the newest last.',
  boots: BOOTS,
  brake:
    'Set while TPUs of the zone are silent: how many were replaced or `held`, and the probes of the zone. Else null.',
  orphans: 'Set while many nodes of the zone have no document: `since_at` and `unseen_since_at`. Else null.',
  updated_at: 'Time of the last change of the document.',
};
