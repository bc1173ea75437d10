/** Meaning of the fields of runs, streams and shards, for docs/firestore.md. */
import type {Run} from '../../../domain/run/run.ts';
import type {Shard} from '../../../domain/stream/checkpoint.ts';
import type {Stream} from '../../../domain/stream/stream.ts';

const SAID =
  'Publish time of the last message about each field: `status_at` for `status`. An older message that arrives late changes nothing.';
const CREATED = 'Time at which the document was written first.';
const UPDATED = 'Time of the last change of the document.';

export const runFields: Record<keyof Run, string> = {
  run: 'Id of the run, as in `datasets/RUN/`.',
  status: 'Status word of the run; [Operations](operations.md) explains each.',
  reason: 'Why the run is paused or has ended; null without a reason.',
  spec: 'The complete spec that TPUs use. Null until the first stream is accepted, then frozen.',
  spec_hash: 'SHA-256 of `spec` with sorted keys. Every shard carries it. Null as long as `spec` is null.',
  pool: 'Pool whose TPUs work on the run.',
  priority: 'Order between runs that share TPUs: the higher number goes first.',
  affinity: '`any`: every TPU takes every stream. `fixed`: each stream belongs to one TPU.',
  stream_offset: 'Number of the stream of the first TPU. Counts only with `affinity: fixed`.',
  bundle: 'SHA-256 of the bundle of the first lease. Null before the first lease.',
  allow_mixed_code: 'True: TPUs of another bundle may continue the run.',
  budget_usd: 'Dollars that the run may cost. Null: no limit of its own.',
  spent_usd:
    'Dollars of the TPU incarnations that have ended. Equals `cost_usd` when no TPU works for the run.',
  cost_usd:
    'Dollars of ended and living incarnations, as of the last tick. The budget compares with this cost.',
  version: 'Count of applied `configure` messages. A message with `if_version` applies only to this version.',
  stopped_at: 'Time of a final `stop`; else null.',
  said: SAID,
  machine_deaths: 'Machines in a row that died at work on the run without a stored shard. Ten pause the run.',
  machine_deaths_shards:
    'Value of `total_shards` at the last counted death. A higher total starts the count again.',
  machine_failed_streams:
    'Streams that failed because their machines died, since the last `resume`. Three pause the run.',
  unjudged_death_at: 'Time of the last counted silent machine without the verdict of a probe; else null.',
  streams_pending: 'Streams that wait for a TPU, as of the last summary.',
  streams_in_progress: 'Streams with a lease, as of the last summary.',
  streams_completed: 'Streams whose final shard is stored, as of the last summary.',
  streams_failed: 'Failed streams, as of the last summary.',
  total_samples_processed: 'Stored samples of all streams.',
  rejected_samples: 'Rejected samples of all streams.',
  total_tokens: 'Tokens of the stored samples.',
  total_shards: 'Stored shards of all streams.',
  total_bytes: 'Bytes of the stored shards.',
  created_at: CREATED,
  updated_at: UPDATED,
};

export const streamFields: Record<keyof Stream, string> = {
  run: 'Id of the run.',
  stream: 'Id of the stream, with three digits or more: `007`.',
  worker_id:
    'Number of the stream: 7 for `007`. The name comes from the first design; it is no TPU. Shards lie in `tpu_7/`.',
  object: 'Name of the stream object in the bucket.',
  generation: 'Generation of the object that TPUs fetch.',
  size_bytes: 'Bytes of the object.',
  crc32c: 'CRC-32C of the object in base64, as Cloud Storage writes it.',
  dataset_path: 'Address of the object: `gs://BUCKET/OBJECT`.',
  model_path: 'Model of the run, as its spec names it.',
  status: 'Status word of the stream; [Operations](operations.md) explains each.',
  epoch:
    'Count of leases ever granted. Every grant adds 1, so the work of an older holder is recognised and refused.',
  lease: 'The holder: `worker`, `incarnation` and `epoch`. Null without a holder.',
  last_processed_sample_idx:
    'Index of the last sample of the gapless stored shards; -1 without a shard. Work continues behind it.',
  total_samples_processed: 'Stored samples.',
  total_shards: 'Stored shards without a gap.',
  rejected_samples: 'Rejected samples.',
  total_tokens: 'Tokens of the stored samples.',
  total_bytes: 'Bytes of the stored shards.',
  finished: 'True when the final shard is stored.',
  failures:
    'Failures that the stream itself caused. At three the stream is `failed`. Preemptions never count.',
  faults:
    'Machines in a row that failed at the stream without a stored shard. At five the stream is `failed`. A stored shard resets the count.',
  last_error: 'Text of the last failure; null before the first.',
  said: SAID,
  blocked_reason:
    'Why no lease is granted before a `rebuild`: a shard has an epoch that was never granted. Else null.',
  created_at: CREATED,
  updated_at: UPDATED,
};

export const shardFields: Record<keyof Shard, string> = {
  shard: 'Number of the shard in its stream, from 1.',
  object: 'Name of the shard object in the bucket.',
  epoch: 'Epoch of the lease under which the shard was stored.',
  first_sample: 'Index of the first sample of the range.',
  last_sample: 'Index of the last sample of the range.',
  samples: 'Stored samples of the range.',
  rejected: 'Rejected samples of the range.',
  tokens: 'Tokens of the stored samples.',
  size_bytes: 'Bytes of the object.',
  spec_hash: 'The spec under which the shard was made.',
  stream_crc32c: 'CRC-32C of the stream content from which the shard was made.',
  final: 'True for the last shard of the stream.',
  stored_at: 'Time of the object in the bucket; null if the event did not say so.',
};
