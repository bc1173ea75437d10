import {z} from 'zod';
import {count, dollars, epoch, instant, orNull, stored, text} from '../fields.ts';

/**
 * A version that one host has stored, and the time in which its folder was so, in milliseconds of its clock. `objects`: those created for it.
 * `is_new`: false for what the host restored.
 */
const hostVersion = stored({
  version: count,
  digest: text,
  label: orNull(text),
  bytes: count,
  files: count,
  objects: count,
  is_new: z.boolean(),
  from_ms: count,
  until_ms: count,
});
export type HostVersion = z.infer<typeof hostVersion>;

/** A version that the next attempt may restore. `parts`: by process number. */
const checkpointVersion = stored({
  epoch,
  at: instant,
  label: orNull(text),
  bytes: count,
  parts: z.record(text, hostVersion),
});
export type CheckpointVersion = z.infer<typeof checkpointVersion>;

export const checkpointState = stored({
  complete: orNull(checkpointVersion),
  previous: orNull(checkpointVersion),
  pending: z.record(text, z.array(hostVersion)),
  restored_at: orNull(instant),
  problem: orNull(text),
  own_epoch: epoch,
  charged_at: orNull(instant),
  storage_usd: dollars,
});
export type CheckpointState = z.infer<typeof checkpointState>;

export const NO_CHECKPOINT: CheckpointState = {
  ...{complete: null, previous: null, pending: {}, restored_at: null, problem: null},
  ...{own_epoch: 0, charged_at: null, storage_usd: 0},
};
