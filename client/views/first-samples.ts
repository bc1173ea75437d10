/** samples.json of a stream: its first samples as the model saw them. A worker writes the object, so it may have any content. */
import {z} from 'zod';
import {parseJson} from '../../shared/contracts/messages/schemas.ts';
import {outputPrefix} from '../../shared/domain/names.ts';
import type {Stream} from '../../shared/domain/records/stream.ts';
import type {Objects} from '../../shared/ports/ports.ts';

const MAX_BYTES = 1_000_000;
/** Streams that are tried, and tokens of a sample. */
const [MOST_STREAMS, MOST_TOKENS] = [3, 256];

const count = z.int().nonnegative();
const places = z.array(count).max(MOST_TOKENS);
const sample = z.strictObject({
  ...{sample: count, line: count, left_out: count, special: places, rows: places.nullable()},
  ...{tokens: z.array(z.string().max(200)).max(MOST_TOKENS), mask: places.nullable()},
});
export const firstSamples = z.strictObject({
  samples: z.array(sample).min(1).max(3),
});

/** `left_out`: tokens in the middle that `tokens` lacks. `rows`: places of the tokens that are stored or pooled; null for all. */
export type FirstSample = z.infer<typeof sample>;
export type FirstSamples = {stream: string; samples: FirstSample[]};

/** Those of the first stream that has them; null if no stream has. */
export async function readFirstSamples(
  objects: Objects,
  streams: readonly Stream[],
): Promise<FirstSamples | null> {
  for (const {run, stream} of streams.filter(each => each.epoch > 0).slice(0, MOST_STREAMS)) {
    const name = `${outputPrefix(run, stream)}samples.json`;
    const bytes = await objects.read(name, {max_bytes: MAX_BYTES}).catch(() => undefined);
    if (!bytes) continue;
    try {
      return {stream, ...parseJson(firstSamples, Buffer.from(bytes).toString('utf8'), name)};
    } catch {}
  }
  return null;
}
