import assert from 'node:assert/strict';
import {readFileSync, writeFileSync} from 'node:fs';
import {Ajv2020} from 'ajv/dist/2020.js';
import fc from 'fast-check';
import type {z} from 'zod';
import {Rejected} from '../../../shared/contracts/errors.ts';
import {
  controlJsonSchema,
  controlMessage,
  objectEvent,
  parseJson,
  parseValue,
  pubsubEvent,
  shardMetadata,
  tpuMessage,
  workerRequest,
} from '../../../shared/contracts/schemas.ts';
import {runSpecInput} from '../../../shared/contracts/spec.ts';
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
  {name: 'an unknown action', schema: controlMessage, given: {action: 'destroy', run: 'r'}, says: 'action'},
  {name: 'no action', schema: controlMessage, given: {run: 'r'}, says: 'action'},
  {
    name: 'an unknown key',
    schema: controlMessage,
    given: {action: 'pause', run: 'r', force: true},
    says: 'force',
  },
  {
    name: 'a key of another action',
    schema: controlMessage,
    given: {action: 'pause', run: 'r', worker: 'w'},
    says: 'worker',
  },
  {name: 'no run', schema: controlMessage, given: {action: 'pause'}, says: 'run'},
  {
    name: 'a run that cannot be',
    schema: controlMessage,
    given: {action: 'pause', run: '../x'},
    says: 'a run id',
  },
  {
    name: 'a worker that cannot be',
    schema: controlMessage,
    given: {action: 'recreate', worker: 'tpu'},
    says: 'a worker name',
  },
  {
    name: 'a worker whose name is too long for any document',
    schema: controlMessage,
    given: {action: 'recreate', worker: `tpu-${'a'.repeat(3000)}-b1-a-0`},
    says: 'worker',
  },
  {
    name: 'a zone as long',
    schema: controlMessage,
    given: {action: 'scale', zones: [`${'a'.repeat(3000)}-b1-a`]},
    says: 'zones.0',
  },
  {name: 'text', schema: controlMessage, given: 'pause', says: 'expected an object, got a string'},
  {
    name: 'a negative incarnation',
    schema: tpuMessage,
    given: {action: 'create', worker: sender.worker, incarnation: -1},
    says: 'incarnation',
  },
  {
    name: 'half an incarnation',
    schema: tpuMessage,
    given: {action: 'create', worker: sender.worker, incarnation: 1.5},
    says: 'incarnation',
  },
  {
    name: 'an object event without a name',
    schema: objectEvent,
    given: {bucket: 'b', generation: '1'},
    says: 'name',
  },
  {
    name: 'a generation that is no number',
    schema: objectEvent,
    given: {bucket: 'b', name: 'n', generation: 'x'},
    says: 'generation',
  },
  {name: 'an event without a message', schema: pubsubEvent, given: {data: 'x'}, says: 'message'},
  {
    name: 'a host that was not given',
    schema: workerRequest,
    given: {action: 'lease', worker: sender.worker, incarnation: 1},
    says: 'host',
  },
  {
    name: 'a lease of a stream that cannot be',
    schema: workerRequest,
    given: {action: 'release', ...sender, lease: {...lease, stream: '7'}, outcome: 'drained', failure: null},
    says: 'lease.stream',
  },
  {
    name: 'an outcome that cannot be',
    schema: workerRequest,
    given: {action: 'release', ...sender, lease, outcome: 'done', failure: null},
    says: 'outcome',
  },
  {
    name: 'a failure of no kind',
    schema: workerRequest,
    given: {action: 'release', ...sender, lease, outcome: 'failed', failure: {reason: 'x'}},
    says: 'failure.kind',
  },
  {
    name: 'a phase that cannot be',
    schema: workerRequest,
    given: {action: 'heartbeat', ...sender, phase: 'sleeping', lease: null, progress: null},
    says: 'phase',
  },
  {
    name: 'an epoch that cannot be granted',
    schema: workerRequest,
    given: heartbeat({lease: {...lease, epoch: Number.MAX_SAFE_INTEGER}}),
    says: 'lease.epoch',
  },
  {
    name: 'more samples than a stream has',
    schema: workerRequest,
    given: heartbeat({progress: {...progress, samples_done: Number.MAX_SAFE_INTEGER}}),
    says: 'progress.samples_done',
  },
  {
    name: 'more tokens than a stream has',
    schema: workerRequest,
    given: heartbeat({progress: {...progress, tokens_done: Number.MAX_SAFE_INTEGER}}),
    says: 'progress.tokens_done',
  },
  {
    name: 'an incarnation that no label holds',
    schema: workerRequest,
    given: {...heartbeat({}), incarnation: 1e9},
    says: 'incarnation',
  },
  {
    name: 'a shard with more tokens than a shard has',
    schema: shardMetadata,
    given: {...shardMetadataOf(), tokens: MAX},
    says: 'tokens',
  },
  {
    name: 'a shard with more samples than a shard has',
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
    name: 'a shard with more tokens than a number holds',
    schema: shardMetadata,
    given: {...shardMetadataOf(), tokens: '9999999999999999999'},
    says: 'tokens',
  },
  {
    name: 'a shard that is perhaps the last',
    schema: shardMetadata,
    given: {...shardMetadataOf(), final: 'yes'},
    says: 'final',
  },
  {
    name: 'a shard with half a hash',
    schema: shardMetadata,
    given: {...shardMetadataOf(), spec_hash: 'abc'},
    says: 'spec_hash',
  },
];

describe('what comes from outside', () => {
  for (const {name, schema, given, says} of refused)
    it(`${name} is refused, and the reason names it`, () => {
      assert.throws(
        () => parseValue(schema, given, 'It'),
        error =>
          error instanceof Rejected &&
          error.message.startsWith('It is not valid') &&
          error.message.includes(says),
      );
    });

  const reasons: {schema: z.ZodType; given: unknown; is: string}[] = [
    {schema: controlMessage, given: {action: 'pause'}, is: 'run is missing'},
    {schema: controlMessage, given: {action: 'pause', run: 'r', force: 1}, is: 'there is no "force"'},
    {
      schema: controlMessage,
      given: {action: 'retry', run: 'r', stream: '7'},
      is: 'stream: expected 3 to 9 digits such as 007, but it is "7"',
    },
    {
      schema: shardMetadata,
      given: {...shardMetadataOf(), samples: 'ten', spec_hash: 'abc'},
      is: 'samples: expected 1 to 19 digits, but it is "ten"; spec_hash: expected 64 hexadecimal digits, but it is "abc"',
    },
    {
      schema: controlMessage,
      given: {action: 'scale', zones: [], budget_usd: 0},
      is: 'zones: expected at least 1 entry; budget_usd: expected more than 0, but it is 0',
    },
    {schema: runSpecInput, given: {sites: 'resid_post'}, is: 'sites: expected a list, got a string'},
    {schema: runSpecInput, given: {seed: 0.5}, is: 'seed: expected a whole number, got 0.5'},
    {
      schema: runSpecInput,
      given: {max_seq_length: 1e17},
      is: 'max_seq_length: expected at most 131072, but it is 100000000000000000',
    },
    {
      schema: runSpecInput,
      given: {over_long: 'cut'},
      is: 'over_long: expected one of "reject", "truncate", but it is "cut"',
    },
    {schema: shardMetadata, given: {}, is: 'schema is missing: Gleaner did not write it'},
    {
      schema: shardMetadata,
      given: {...shardMetadataOf(), schema: 'gleaner/2', samples: 'ten'},
      is: 'schema: expected "gleaner/1", but it is "gleaner/2"',
    },
    {
      schema: controlMessage,
      given: {action: 'dance'},
      is: 'action: expected one of "start", "pause", "stop", "resume", "retry", "cancel", "recreate", "delete", "rebuild", "configure", "scale", but it is "dance"',
    },
  ];
  for (const {schema, given, is} of reasons)
    it(`${JSON.stringify(given).slice(0, 80)} is refused once for each mistake, in plain words`, () =>
      assert.throws(() => parseValue(schema, given, 'It'), {message: `It is not valid: ${is}`}));

  for (const text of ['', '{', 'pause', '\u{1F600}', '{"a":\u{1F600}}', '\u0000'])
    it(`${JSON.stringify(text)} is no JSON, and the reason can be stored`, () => {
      assert.throws(
        () => parseJson(controlMessage, text, 'The message'),
        error =>
          error instanceof Rejected &&
          /^The message is not JSON/.test(error.message) &&
          error.message.isWellFormed(),
      );
    });

  it('the text of a Pub/Sub message is decoded, and an empty one is empty text', () => {
    const data = Buffer.from('{"action":"pause","run":"größe"}').toString('base64');
    assert.equal(parseValue(pubsubEvent, {message: {data}}, 'x').text, '{"action":"pause","run":"größe"}');
    assert.equal(parseValue(pubsubEvent, {message: {attributes: {}}}, 'x').text, '');
  });

  for (const [publishTime, published_at] of [
    ['2026-11-22T10:00:00Z', '2026-11-22T10:00:00.000Z'],
    ['2026-11-22T10:00:00.123456789Z', '2026-11-22T10:00:00.123Z'],
    ['2026-11-22T12:00:00.5+02:00', '2026-11-22T10:00:00.500Z'],
    ['noon', undefined],
    [undefined, undefined],
  ])
    it(`the publish time ${publishTime} of a Pub/Sub message is read as ${published_at}`, () => {
      assert.equal(parseValue(pubsubEvent, {message: {publishTime}}, 'x').published_at, published_at);
    });

  it('an object event may have its generation as a number or as text', () => {
    for (const generation of [1700000000000000, '1700000000000000'])
      assert.equal(
        parseValue(objectEvent, {bucket: 'b', name: 'n', generation, size: '3'}, 'x').generation,
        '1700000000000000',
      );
  });

  it('a shard that says what it is becomes numbers', () => {
    const {shard, tokens, final} = parseValue(
      shardMetadata,
      {...shardMetadataOf(), tokens: '1000000000000', made_by: 'me'},
      'x',
    );
    assert.deepEqual({shard, tokens, final}, {shard: 1, tokens: 1e12, final: true});
  });

  it('a failure with broken text in it can be stored all the same', () => {
    const failure = {kind: 'stream', reason: 'line 3: \ud83d'};
    const request = parseValue(
      workerRequest,
      {action: 'release', ...sender, lease, outcome: 'failed', failure},
      'x',
    );
    assert.ok(request.action === 'release' && request.failure?.reason.isWellFormed());
  });

  it('an agent may say more than this release knows', () => {
    const request = {action: 'lease', ...sender, loaded: null, gpu_temperature: 40};
    assert.equal(parseValue(workerRequest, request, 'x').action, 'lease');
  });
});

describe('control messages', () => {
  it('are described by docs/control.schema.json', () => {
    const path = new URL('../../../docs/control.schema.json', import.meta.url);
    const schema = JSON.parse(JSON.stringify(controlJsonSchema()));
    if (process.env.UPDATE_CONTROL_SCHEMA) writeFileSync(path, `${JSON.stringify(schema, null, 2)}\n`);
    const what = 'docs/control.schema.json is out of date: run this test with UPDATE_CONTROL_SCHEMA=1';
    assert.deepEqual(JSON.parse(readFileSync(path, 'utf8')), schema, what);
  });

  it('are taken and refused as they are described', () => {
    const fits = new Ajv2020({strict: false}).compile(controlJsonSchema());
    const isTaken = (message: object) => controlMessage.safeParse(message).success;
    const value = fc.constantFrom('my-run', '007', 'tpu-us-central1-a-0', 'tpu', 'node', 0, 2, -1, 1.5, null);
    const zones = fc.constantFrom([], ['us-central1-a'], ['us-central1-a', 'us-central1-a']);
    const message = fc.record(
      {
        action: fc.constantFrom(...'start retry cancel delete rebuild configure scale dance'.split(' ')),
        run: value,
        stream: value,
        worker: value,
        pool: value,
        priority: value,
        budget_usd: value,
        workers_per_zone: value,
        zones: fc.oneof(zones, value),
        provisioning: value,
        if_version: value,
      },
      {requiredKeys: ['action']},
    );
    // Most keys are another action's: without them more messages are nearly right.
    const fewer = fc.tuple(message, fc.subarray(['run', 'stream', 'worker', 'pool', 'zones', 'priority']));
    const some = fewer.map(([all, left]) =>
      Object.fromEntries(Object.entries(all).filter(([key]) => key === 'action' || left.includes(key))),
    );
    let taken = 0;
    fc.assert(
      fc.property(fc.oneof(message, some), given => {
        taken += Number(isTaken(given));
        assert.equal(fits(given), isTaken(given), JSON.stringify(given));
      }),
      {numRuns: 3000, examples: [[{action: 'scale', pool: 'tpu'}], [{action: 'configure', run: 'my-run'}]]},
    );
    assert.ok(taken > 10, `${taken} were right`);
  });
});
