import assert from 'node:assert/strict';
import type {z} from 'zod';
import {Rejected} from '../../../shared/contracts/errors.ts';
import {parseValue, shardMetadata, tpuMessage, workerRequest} from '../../../shared/contracts/schemas.ts';
import {shardMetadataOf} from '../../support/builders.ts';

const MAX = String(Number.MAX_SAFE_INTEGER);
const sender = {worker: 'tpu-us-central1-a-0', incarnation: 1, host: 0};
const lease = {run: 'my-run', stream: '007', epoch: 1};
const progress = {samples_done: 1, samples_total: null, tokens_done: 9, shards_done: 1, tokens_per_s: 3};
const heartbeat = (changes: object) => ({
  action: 'heartbeat',
  ...sender,
  phase: 'running',
  lease,
  progress,
  ...changes,
});

const refused: {name: string; schema: z.ZodType; given: unknown; says: string}[] = [
  {
    name: 'a negative incarnation',
    schema: tpuMessage,
    given: {action: 'create', worker: sender.worker, incarnation: -1},
    says: 'incarnation',
  },
  {
    name: 'a fractional incarnation',
    schema: tpuMessage,
    given: {action: 'create', worker: sender.worker, incarnation: 1.5},
    says: 'incarnation',
  },
  {
    name: 'a request without a host',
    schema: workerRequest,
    given: {action: 'lease', worker: sender.worker, incarnation: 1},
    says: 'host',
  },
  {
    name: 'a lease of an invalid stream',
    schema: workerRequest,
    given: {action: 'release', ...sender, lease: {...lease, stream: '7'}, outcome: 'drained', failure: null},
    says: 'lease.stream',
  },
  {
    name: 'an unknown outcome',
    schema: workerRequest,
    given: {action: 'release', ...sender, lease, outcome: 'done', failure: null},
    says: 'outcome',
  },
  {
    name: 'a failure without a kind',
    schema: workerRequest,
    given: {action: 'release', ...sender, lease, outcome: 'failed', failure: {reason: 'x'}},
    says: 'failure.kind',
  },
  {
    name: 'a failure with another outcome',
    schema: workerRequest,
    given: {
      ...{action: 'release', ...sender, lease, outcome: 'drained'},
      failure: {kind: 'infrastructure', reason: 'x'},
    },
    says: 'failure: expected null, because the outcome is not failed',
  },
  {
    name: 'an unknown phase',
    schema: workerRequest,
    given: {action: 'heartbeat', ...sender, phase: 'sleeping', lease: null, progress: null},
    says: 'phase',
  },
  {
    name: 'an epoch above every grant',
    schema: workerRequest,
    given: heartbeat({lease: {...lease, epoch: Number.MAX_SAFE_INTEGER}}),
    says: 'lease.epoch',
  },
  {
    name: 'more samples than a stream may have',
    schema: workerRequest,
    given: heartbeat({progress: {...progress, samples_done: Number.MAX_SAFE_INTEGER}}),
    says: 'progress.samples_done',
  },
  {
    name: 'more tokens than a stream may have',
    schema: workerRequest,
    given: heartbeat({progress: {...progress, tokens_done: Number.MAX_SAFE_INTEGER}}),
    says: 'progress.tokens_done',
  },
  {
    name: 'a host that the work waits for, of 401 characters',
    schema: workerRequest,
    given: heartbeat({progress: {...progress, waits_for: 'x'.repeat(401)}}),
    says: 'progress.waits_for',
  },
  {
    name: 'an incarnation of ten digits',
    schema: workerRequest,
    given: {...heartbeat({}), incarnation: 1e9},
    says: 'incarnation',
  },
  {
    name: 'a shard with more tokens than it may have',
    schema: shardMetadata,
    given: {...shardMetadataOf(), tokens: MAX},
    says: 'tokens',
  },
  {
    name: 'a shard with more samples than it may have',
    schema: shardMetadata,
    given: {...shardMetadataOf(), samples: '1000000001'},
    says: 'samples',
  },
  {
    name: 'a shard of an epoch above a million',
    schema: shardMetadata,
    given: {...shardMetadataOf(), epoch: '1000001'},
    says: 'epoch',
  },
  {
    name: 'a shard of epoch 0',
    schema: shardMetadata,
    given: {...shardMetadataOf(), epoch: '0'},
    says: 'epoch',
  },
  {
    name: 'a shard of another schema',
    schema: shardMetadata,
    given: {...shardMetadataOf(), schema: 'gleaner/2'},
    says: 'schema',
  },
  {name: 'a shard without metadata', schema: shardMetadata, given: {}, says: 'schema'},
  {
    name: 'a shard with a number in words',
    schema: shardMetadata,
    given: {...shardMetadataOf(), samples: 'ten'},
    says: 'samples',
  },
  {
    name: 'a shard with a negative number',
    schema: shardMetadata,
    given: {...shardMetadataOf(), rejected: '-1'},
    says: 'rejected',
  },
  {
    name: 'a shard with more tokens than a number can hold',
    schema: shardMetadata,
    given: {...shardMetadataOf(), tokens: '9999999999999999999'},
    says: 'tokens',
  },
  {
    name: 'a shard with an unclear final mark',
    schema: shardMetadata,
    given: {...shardMetadataOf(), final: 'yes'},
    says: 'final',
  },
  {
    name: 'a shard with a short hash',
    schema: shardMetadata,
    given: {...shardMetadataOf(), spec_hash: 'abc'},
    says: 'spec_hash',
  },
];

describe('messages, events and metadata of machines', () => {
  for (const {name, schema, given, says} of refused)
    it(`${name} is refused, and the reason names the key`, () => {
      assert.throws(
        () => parseValue(schema, given, 'It'),
        error =>
          error instanceof Rejected &&
          error.message.startsWith('It is not valid') &&
          error.message.includes(says),
      );
    });

  it('valid metadata of a shard become numbers', () => {
    const {shard, tokens, final} = parseValue(
      shardMetadata,
      {...shardMetadataOf(), tokens: '1000000000000', made_by: 'me'},
      'x',
    );
    assert.deepEqual({shard, tokens, final}, {shard: 1, tokens: 1e12, final: true});
  });

  it('a failure reason with invalid Unicode becomes storable', () => {
    const failure = {kind: 'stream', reason: 'line 3: \ud83d'};
    const request = parseValue(
      workerRequest,
      {action: 'release', ...sender, lease, outcome: 'failed', failure},
      'x',
    );
    assert.ok(request.action === 'release' && request.failure?.reason.isWellFormed());
  });

  it('unknown keys of a worker request are ignored', () => {
    const request = {action: 'lease', ...sender, loaded: null, gpu_temperature: 40};
    assert.equal(parseValue(workerRequest, request, 'x').action, 'lease');
  });
});
