/** Documents and objects of a fleet whose work is over. */
import {metadataObject, streamId, streamObject} from '../../shared/domain/names.ts';
import {NO_MESSAGES, NO_STREAMS, type Run} from '../../shared/domain/run/run.ts';
import {newStream, type Stream} from '../../shared/domain/stream/stream.ts';
import {iso} from '../../shared/domain/time.ts';
import type {Store} from '../../shared/ports.ts';
import {contentOf} from './bucket.ts';
import {HASH, NOW, putAll, type Size, workersOf} from './scene.ts';

export const RUN = 'run-0';
const SHARDS = 20;
const FACTS = {samples: 2000, rejected: 0, tokens: 2_000_000, shards: SHARDS};
const PAGE = 1000;

/** Every TPU is idle, and all streams of the run are complete. A run of one stream is paused. */
export async function fillEnding(store: Store, size: Size): Promise<void> {
  const idle = {phase: 'idle', work: null, epoch: null, claimed_at: null, costs: {}, charged_to: RUN};
  await putAll(store, [
    [`runs/${RUN}`, aRun(size)],
    ...workersOf(size).map(worker => [`workers/${worker.name}`, {...worker, ...idle}] as [string, object]),
  ]);
  for (let first = 0; first < size.streams; first += PAGE) {
    const streams = Array.from({length: Math.min(PAGE, size.streams - first)}, (_, index) =>
      aCompleteStream(first + index),
    );
    await putAll(
      store,
      streams.map(stream => [`runs/${RUN}/streams/${stream.stream}`, stream]),
    );
  }
}

function aCompleteStream(index: number): Stream {
  const {name: object, generation, size_bytes, crc32c} = contentOf(streamObject(RUN, streamId(index)));
  const content = {object, generation, size_bytes, crc32c};
  return {
    ...newStream(RUN, index, content, {bucket: 'bench', model: 'm', now: NOW - 86_400_000}),
    status: 'completed',
    finished: true,
    epoch: 1,
    last_processed_sample_idx: FACTS.samples - 1,
    total_samples_processed: FACTS.samples,
    total_shards: SHARDS,
    total_tokens: FACTS.tokens,
    total_bytes: SHARDS * 1e9,
  };
}

function aRun(size: Size): Run {
  return {
    ...{
      run: RUN,
      status: size.streams > 1 ? 'active' : 'paused',
      reason: null,
      spec: {model: 'm'},
      spec_hash: HASH,
    },
    ...{
      pool: 'tpu',
      priority: 0,
      budget_usd: 1e6,
      spent_usd: 0,
      cost_usd: 0,
      ...NO_MESSAGES,
      affinity: 'any',
    },
    ...{
      stream_offset: 0,
      bundle: null,
      allow_mixed_code: false,
      ...NO_STREAMS,
      created_at: iso(NOW - 86_400_000),
      updated_at: iso(NOW - 60_000),
    },
  };
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
