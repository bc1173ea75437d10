/** The last shard of a stream completes it, and so its header and its size are compared first. */
import assert from 'node:assert/strict';
import {gzipSync, zstdCompressSync} from 'node:zlib';
import {withCheckedFinal} from '../../shared/control-plane/streams/final-shard.ts';
import {readShards} from '../../shared/control-plane/streams/stored-shards.ts';
import {type ShardFormat, shardObject} from '../../shared/domain/names.ts';
import {FakeBucket} from '../world/bucket.ts';
import {callAtOnce} from '../world/call.ts';
import {planShards, shardBytes, shardMetadata, someLines} from '../world/shard-plan.ts';

const SOURCE = {run: 'my-run', stream: '000', spec_hash: 'a'.repeat(64), dataset: {crc32c: 'AAAAAA=='}};
const PLAN = planShards(someLines(2))[0] ?? assert.fail();
const PLAIN = shardBytes(PLAN, SOURCE);
const LENGTH = Number(PLAIN.readBigUInt64LE());
const HEADER = JSON.parse(PLAIN.toString('utf8', 8, 8 + LENGTH));

/** The shard with another header. */
function headed(change: (header: typeof HEADER) => object | string): Buffer {
  const changed = change(structuredClone(HEADER));
  const text = Buffer.from(typeof changed === 'string' ? changed : JSON.stringify(changed));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  return Buffer.concat([length, text, PLAIN.subarray(8 + LENGTH)]);
}

const of = (format: ShardFormat) =>
  headed(({__metadata__, ...tensors}) => ({__metadata__: {...__metadata__, format}, ...tensors}));
const sizes = (...values: number[]) => {
  const bytes = Buffer.alloc(4 * values.length);
  for (const [index, value] of values.entries()) bytes.writeUInt32LE(value, 4 * index);
  return bytes;
};

/** A seekable zstd file: a frame of the header, one of the rest, and the table of both. */
function packed(plain: Buffer): Buffer {
  const at = 8 + Number(plain.readBigUInt64LE());
  const parts = [plain.subarray(0, at), plain.subarray(at)];
  const frames = parts.map(part => zstdCompressSync(part));
  const entries = frames.flatMap((frame, index) => [frame.length, parts[index]?.length ?? 0]);
  const table = Buffer.concat([sizes(...entries, 2), Buffer.alloc(1), sizes(0x8f92eab1)]);
  return Buffer.concat([...frames, sizes(0x184d2a5e, table.length), table]);
}

function pickled(metadata: object): Buffer {
  const text = Buffer.from(JSON.stringify(metadata));
  const [extra, field] = [Buffer.alloc(2), Buffer.alloc(2)];
  extra.writeUInt16LE(text.length + 4);
  field.writeUInt16LE(text.length);
  const fixed = Buffer.from([0x1f, 0x8b, 8, 4, 0, 0, 0, 0, 0, 3]);
  return Buffer.concat([fixed, extra, Buffer.from('GL'), field, text, gzipSync('pickle').subarray(10)]);
}

/** Why a final shard of these bytes is none; undefined if it is one. */
async function problemOf(format: ShardFormat, bytes: Buffer): Promise<string | undefined> {
  const bucket = new FakeBucket(() => 0);
  const metadata = {...shardMetadata(PLAN, SOURCE, 1), format};
  const listing = [bucket.put(shardObject('my-run', '000', 1, format), bytes, metadata)];
  const stored = readShards({run: 'my-run', stream: '000'}, listing);
  const {shards, invalid} = await withCheckedFinal(bucket.through(callAtOnce), stored, listing);
  assert.equal(shards.length + invalid.length, 1);
  return invalid[0]?.reason;
}

describe('a final shard', () => {
  const right: [ShardFormat, Buffer][] = [
    ['safetensors', of('safetensors')],
    ['safetensors.zst', packed(of('safetensors.zst'))],
    ['pkl.gz', pickled({...HEADER.__metadata__, format: 'pkl.gz'})],
  ];
  for (const [format, bytes] of right)
    it(`of ${format} counts as it is`, async () => assert.equal(await problemOf(format, bytes), undefined));

  const lines = PLAIN.length - 8 - LENGTH;
  const wrong: {name: string; format?: ShardFormat; bytes: Buffer; says: RegExp}[] = [
    {name: 'it is empty', bytes: Buffer.alloc(0), says: /no header of safetensors/},
    {name: 'it is cut', bytes: PLAIN.subarray(0, -1), says: /\d+ bytes, but its header says/},
    {name: 'it is rubbish', bytes: Buffer.alloc(7000, 'x'), says: /no header of safetensors/},
    {name: 'its header is no JSON', bytes: headed(() => '{'), says: /not JSON/},
    {name: 'its header is a list', bytes: headed(() => '[]'), says: /other fields/},
    {
      name: 'its header has too many values',
      bytes: headed(() => `[${'{},'.repeat(150_000)}0]`),
      says: /more than/,
    },
    {
      name: 'it has no tensor',
      bytes: headed(({__metadata__}) => ({__metadata__})),
      says: /but its header says/,
    },
    {
      name: 'its tensor has another size',
      bytes: headed(header => ({...header, lines: {...header.lines, shape: [lines + 1]}})),
      says: /another size than its shape/,
    },
    {
      name: 'its tensors leave a gap',
      bytes: headed(header => ({
        ...header,
        lines: {...header.lines, shape: [lines - 1], data_offsets: [1, lines]},
      })),
      says: /overlap or leave a gap/,
    },
    {
      name: 'an offset is no number',
      bytes: headed(header => ({...header, lines: {...header.lines, data_offsets: [0, '1']}})),
      says: /wrong number/,
    },
    ...['stream', 'first_sample', 'last_sample', 'samples', 'rejected', 'tokens', 'spec_hash', 'final'].map(
      key => ({
        name: `its header has another ${key}`,
        bytes: headed(header => ({...header, __metadata__: {...header.__metadata__, [key]: '9'}})),
        says: new RegExp(`says ${key} 9 in its header`),
      }),
    ),
    {
      name: 'it has no table',
      format: 'safetensors.zst',
      bytes: zstdCompressSync(PLAIN),
      says: /not a seekable zstd/,
    },
    {
      name: 'it lacks a part of its frames',
      format: 'safetensors.zst',
      bytes: packed(of('safetensors.zst')).subarray(1),
      says: /but frames of/,
    },
    {
      name: 'its first frame is no zstd',
      format: 'safetensors.zst',
      bytes: packed(of('safetensors.zst')).fill(0, 0, 8),
      says: /no header of safetensors/,
    },
    {name: 'it is no gzip', format: 'pkl.gz', bytes: Buffer.alloc(99, 'x'), says: /no header of pkl.gz/},
    {name: 'it is a foreign gzip', format: 'pkl.gz', bytes: gzipSync('x'), says: /no header of pkl.gz/},
    {
      name: 'it is of another stream',
      format: 'pkl.gz',
      bytes: pickled({...HEADER.__metadata__, format: 'pkl.gz', stream: '001'}),
      says: /says stream 001 in its header/,
    },
  ];
  for (const {name, format = 'safetensors', bytes, says} of wrong)
    it(`is set aside where ${name}`, async () => assert.match((await problemOf(format, bytes)) ?? '', says));
});
