/** Documents and objects of a fleet whose work is over. */
import {metadataObject, streamId} from '../../shared/domain/names.ts';
import {aRun, SPEC_HASH as HASH} from '../../test/world/builders.ts';
import {SHARDS_STORED as SHARDS, type Size, storedStream, workersOf} from './scene.ts';

export const RUN = 'run-0';
const FACTS = {samples: 2000, rejected: 0, tokens: 2_000_000, shards: SHARDS};

/** Every TPU is idle, and all streams of the run are complete. A run of one stream is paused. */
export function* endingDocuments(size: Size): Generator<[path: string, data: object]> {
  const idle = {phase: 'idle', work: null, epoch: null, claimed_at: null, costs: {}, charged_to: RUN};
  yield [`runs/${RUN}`, aRun({run: RUN, status: size.streams > 1 ? 'active' : 'paused', budget_usd: 1e6})];
  for (const worker of workersOf(size)) yield [`workers/${worker.name}`, {...worker, ...idle}];
  for (let place = 0; place < size.streams; place++) {
    const stream = storedStream(RUN, place, {status: 'completed', finished: true, epoch: 1});
    yield [`runs/${RUN}/streams/${stream.stream}`, stream];
  }
}

/** The metadata.json of a stream of 24 layers at two sites and 20 shards. */
export function metadataTexts(): (name: string) => string | undefined {
  const stats = Object.fromEntries(
    Array.from({length: 48}, (_, index) => [
      `${index % 2 ? 'resid_post' : 'mlp_out'}.${index >> 1}`,
      {mean: 0.0123456, norm: 31.4159, max_abs: 271.828, non_finite: 0},
    ]),
  );
  const files = Object.fromEntries(Array.from({length: 8}, (_, index) => [`file-${index}.json`, HASH]));
  const shards = Array.from({length: SHARDS}, (_, index) => ({
    filename: `shard_${index}`,
    sha256: HASH,
    stats: {},
  }));
  const text = JSON.stringify({
    ...{schema: 'gleaner/1', run: RUN, worker_id: -1, spec_hash: HASH, total_samples: FACTS.samples},
    ...{total_rejected: 0, total_tokens: FACTS.tokens, total_shards: SHARDS, total_truncated: 0},
    ...{total_rows: FACTS.tokens, stats, versions: {jax: '0.10.2'}, code: HASH, shards},
    model: {
      name: 'm',
      revision: HASH,
      fingerprint: HASH,
      weights_sha256: HASH,
      tokenizer_sha256: HASH,
      files,
    },
  });
  return name => {
    const stream = /tpu_(\d+)\/metadata\.json$/.exec(name)?.[1];
    if (stream === undefined || name !== metadataObject(RUN, streamId(Number(stream)))) return undefined;
    return text.replace('"worker_id":-1', `"worker_id":${stream}`);
  };
}
