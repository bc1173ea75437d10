import {MAX_EPOCH} from '../bounds.ts';
import {withEntry} from '../digest.ts';
import {NOTHING_STORED, type Progress, type Shard} from '../records/shard.ts';

/** Spec, format and content that every shard of a stream must have; an undefined format is unknown. `leaseProblem`: why no lease explains it. */
export type Origin = {
  spec_hash: string;
  format?: string | undefined;
  stream_crc32c: string;
  leaseProblem?: (shard: Shard) => string | undefined;
};

/**
 * An object in the place of a shard that cannot be that shard. `lease`: no lease explains it. `content`: it contradicts the stream, its spec
 * or the shards before it. `bytes`: its header contradicts its metadata.
 */
export type Unfit = {object: string; by: 'lease' | 'content' | 'bytes'; reason: string};

export type Fold = {progress: Progress; counted: Shard[]; waiting: number[]; unfit: Unfit[]};

/**
 * Adds `shards` to `from`. Shards that `from` already counts are skipped, and shards after a gap wait. A shard that does not fit is set
 * aside: one without a lease; of another spec, format or content; with samples that do not follow the previous shard; or after the final
 * shard.
 */
export function foldShards(from: Progress, origin: Origin, shards: readonly Shard[]): Fold {
  const sorted = [...shards].sort((a, b) => a.shard - b.shard);
  let progress = from;
  let last: Shard | undefined;
  const counted: Shard[] = [];
  const behind: Shard[] = [];
  const unfit: Unfit[] = [];
  const refuse = (by: Unfit['by'], {object}: Shard, problem: string) =>
    unfit.push({object, by, reason: `${object} ${problem}`});
  for (const shard of sorted) {
    if (shard.shard <= from.total_shards) {
      if (origin.format !== undefined && !shard.object.endsWith(`.${origin.format}`))
        refuse('content', shard, 'has the number of a stored shard');
      continue;
    }
    const [unleased, foreign] = [origin.leaseProblem?.(shard), foreignTo(origin, shard)];
    if (unleased) refuse('lease', shard, unleased);
    else if (foreign) refuse('content', shard, foreign);
    else if (shard.shard > progress.total_shards + 1 && !progress.finished) behind.push(shard);
    else {
      const next = progressAfter(progress, shard);
      const misfit = misfitAfter(progress, last, shard) ?? sumBeyondBounds(next);
      if (misfit) refuse('content', shard, misfit);
      else {
        progress = next;
        last = shard;
        counted.push(shard);
      }
    }
  }
  const waiting = behind.map(({shard}) => shard);
  return {progress, counted, waiting, unfit};
}

function progressAfter(progress: Progress, shard: Shard): Progress {
  return {
    last_processed_sample_idx: shard.last_sample,
    total_samples_processed: progress.total_samples_processed + shard.samples,
    total_shards: shard.shard,
    rejected_samples: progress.rejected_samples + shard.rejected,
    total_tokens: progress.total_tokens + shard.tokens,
    total_bytes: progress.total_bytes + shard.size_bytes,
    digest: withEntry(progress.digest, shard.sha256, shard.object.slice(shard.object.lastIndexOf('/') + 1)),
    finished: shard.final,
  };
}

function sumBeyondBounds(progress: Progress): string | undefined {
  const sums = Object.entries(progress);
  const excess = sums.find(([, sum]) => typeof sum === 'number' && !Number.isSafeInteger(sum))?.[0];
  return excess && `brings ${excess} of its stream above ${Number.MAX_SAFE_INTEGER}`;
}

/**
 * Content and epoch of a stream document that is created or repaired from shards. The content is that of the stream object, with one
 * exception: if a complete set of shards has other content, the stream was complete before its document was lost, and stays so.
 */
export function originOfShards(crc32c: string, spec_hash: string, shards: readonly Shard[]) {
  const epoch = largestEpoch(shards);
  const [stored] = shards;
  if (!stored || stored.stream_crc32c === crc32c) return {crc32c, epoch};
  const {stream_crc32c} = stored;
  const {progress, unfit} = foldShards(NOTHING_STORED, {spec_hash, stream_crc32c}, shards);
  return {crc32c: progress.finished && unfit.length === 0 ? stream_crc32c : crc32c, epoch};
}

/** Epochs near the upper limit are not accepted as lease epochs, because no room would be left for later leases. */
export function largestEpoch(shards: readonly Shard[]): number {
  return shards.reduce((most, {epoch}) => (epoch > MAX_EPOCH ? most : Math.max(most, epoch)), 0);
}

function foreignTo({spec_hash, format, stream_crc32c}: Origin, shard: Shard): string | undefined {
  if (format !== undefined && !shard.object.endsWith(`.${format}`))
    return `has another format than ${format}, the format of its run`;
  if (shard.spec_hash !== spec_hash)
    return `was made with spec ${shard.spec_hash.slice(0, 12)}, this run has spec ${spec_hash.slice(0, 12)}`;
  if (shard.stream_crc32c !== stream_crc32c)
    return `was made from other content of its stream (crc32c ${shard.stream_crc32c}, now ${stream_crc32c})`;
  return undefined;
}

function misfitAfter(progress: Progress, last: Shard | undefined, shard: Shard): string | undefined {
  const expected = progress.last_processed_sample_idx + 1;
  const range = shard.last_sample - shard.first_sample + 1;
  const before = last ? last.object : `shard ${progress.total_shards}`;
  if (shard.shard === progress.total_shards) return `has the number of ${before}`;
  if (progress.finished) return `comes after ${before}, which is the last shard of its stream`;
  if (shard.first_sample !== expected)
    return `starts at sample ${shard.first_sample}, but ${before} ends at sample ${expected - 1}`;
  if (range < 1 || shard.samples + shard.rejected !== range)
    return `covers ${range} samples, but counts ${shard.samples} stored and ${shard.rejected} rejected`;
  return undefined;
}
