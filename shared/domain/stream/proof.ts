/** The proof of a shard shows that it was stored under the lease in its stream's document, which other tokens for the folder cannot show. */
import {proofOf} from '../digest.ts';
import type {Shard} from '../records/shard.ts';
import type {Stream} from '../records/stream.ts';

/**
 * Why no lease explains the shard. A lease ends when the document records its release or a later grant, not at some time. Before the first
 * grant of the document, shards up to its epoch count, because an earlier document was lost. Kept shards count under every lease.
 */
export function leaseProblem(
  {epoch, ended_epoch, lease_key, kept_shards}: Stream,
  shard: Shard,
): string | undefined {
  if (kept_shards.includes(shard.shard)) return undefined;
  if (lease_key === null)
    return shard.epoch <= epoch ? undefined : `has epoch ${shard.epoch}, which was never granted`;
  if (shard.epoch !== epoch)
    return `has epoch ${shard.epoch}, and the lease of its stream has epoch ${epoch}`;
  if (ended_epoch >= epoch) return `came after the release of its lease, which has epoch ${epoch}`;
  if (shard.proof === proofOf(lease_key, shard)) return undefined;
  return `has no valid proof of the lease with epoch ${epoch}`;
}
