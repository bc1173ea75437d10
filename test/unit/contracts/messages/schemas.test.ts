import assert from 'node:assert/strict';
import type {z} from 'zod';
import {Rejected} from '../../../../shared/contracts/errors.ts';
import {
  parseValue,
  shardMetadata,
  tpuMessage,
  workerRequest,
} from '../../../../shared/contracts/messages/schemas.ts';
import {shardMetadataOf} from '../../../world/builders.ts';

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

const release = (changes: object) => ({
  ...{action: 'release', ...sender, lease, outcome: 'drained', failure: null},
  ...changes,
});
const failure = {kind: 'infrastructure', reason: 'x'};

const requests: {name: string; given: unknown; says: string}[] = [
  {name: 'a request without a host', given: {...sender, action: 'lease', host: undefined}, says: 'host'},
  {
    name: 'a lease of an invalid stream',
    given: release({lease: {...lease, stream: '7'}}),
    says: 'lease.stream',
  },
  {name: 'an unknown outcome', given: release({outcome: 'done'}), says: 'outcome'},
  {
    name: 'a failure without a kind',
    given: release({outcome: 'failed', failure: {reason: 'x'}}),
    says: 'failure.kind',
  },
  {
    name: 'a failure with another outcome',
    given: release({failure}),
    says: 'failure: expected null, because the outcome is not failed',
  },
  {name: 'an unknown phase', given: heartbeat({phase: 'sleeping'}), says: 'phase'},
  {name: 'an incarnation of ten digits', given: heartbeat({incarnation: 1e9}), says: 'incarnation'},
  {
    name: 'an epoch above every grant',
    given: heartbeat({lease: {...lease, epoch: Number.MAX_SAFE_INTEGER}}),
    says: 'lease.epoch',
  },
  ...Object.entries({
    samples_done: Number.MAX_SAFE_INTEGER,
    tokens_done: Number.MAX_SAFE_INTEGER,
    waits_for: 'x'.repeat(401),
  }).map(([key, value]) => ({
    name: `a ${key} above its limit`,
    given: heartbeat({progress: {...progress, [key]: value}}),
    says: `progress.${key}`,
  })),
];

/** Wrong values of one key of the metadata of a shard. */
const metadata: {name: string; given: Record<string, string>}[] = [
  {name: 'more tokens than it may have', given: {tokens: MAX}},
  {name: 'more samples than it may have', given: {samples: '1000000001'}},
  {name: 'an epoch above two million', given: {epoch: '2000001'}},
  {name: 'epoch 0', given: {epoch: '0'}},
  {name: 'another schema', given: {schema: 'gleaner/2'}},
  {name: 'a number in words', given: {samples: 'ten'}},
  {name: 'a negative number', given: {rejected: '-1'}},
  {name: 'more tokens than a number can hold', given: {tokens: '9999999999999999999'}},
  {name: 'an unclear final mark', given: {final: 'yes'}},
  {name: 'a short hash', given: {spec_hash: 'abc'}},
];

const refused: {name: string; schema: z.ZodType; given: unknown; says: string}[] = [
  ...[-1, 1.5].map(incarnation => ({
    name: `incarnation ${incarnation}`,
    schema: tpuMessage,
    given: {action: 'create', worker: sender.worker, incarnation},
    says: 'incarnation',
  })),
  ...requests.map(row => ({...row, schema: workerRequest})),
  {name: 'a shard without metadata', schema: shardMetadata, given: {}, says: 'schema'},
  ...metadata.map(({name, given}) => ({
    name: `a shard with ${name}`,
    schema: shardMetadata,
    given: shardMetadataOf(given),
    says: Object.keys(given).join(),
  })),
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
