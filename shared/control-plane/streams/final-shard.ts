/** Checks the header and the size of a final shard before it completes its stream. `gleaner verify` checks all bytes of all shards. */
import {zstdDecompressSync} from 'node:zlib';
import type {Shard} from '../../domain/records/shard.ts';
import type {StoredShards} from '../../domain/stream/advance.ts';
import type {ObjectInfo, Objects} from '../../ports/ports.ts';

/** Headers with many layers still have less than a megabyte. */
const MOST_HEADER_BYTES = 4_000_000;
/** Most values of a header, estimated by its separators: parsed values take far more memory than their text. */
const MOST_VALUES = 200_000;
const FIRST_READ = 65_536;
/** Metadata of the object that its header repeats. */
const IDENTITY = [
  ...['schema', 'stream', 'shard', 'first_sample', 'last_sample', 'samples', 'rejected', 'tokens'],
  ...['spec_hash', 'stream_crc32c', 'format', 'final'],
];
const ITEM_BYTES: Record<string, number> = {BF16: 2, F16: 2, F32: 4, F64: 8, BOOL: 1};
for (const [width, bytes] of [
  ['8', 1],
  ['16', 2],
  ['32', 4],
  ['64', 8],
] as const)
  Object.assign(ITEM_BYTES, {[`I${width}`]: bytes, [`U${width}`]: bytes});

type Read = (begin: number, end: number) => Promise<Buffer>;
/** `size`: of the decompressed content, which `read` reads. */
type Content = {size: number; read: Read};

class Invalid extends Error {}

/** Moves final shards with a wrong header or size to the invalid ones. */
export async function withCheckedFinal(
  objects: Objects,
  {shards, invalid}: StoredShards,
  listing: readonly ObjectInfo[],
  isLeased: (shard: Shard) => Promise<boolean> = async () => true,
): Promise<StoredShards> {
  const checked: StoredShards = {shards: [], invalid: [...invalid]};
  for (const shard of shards) {
    const info = shard.final && (await isLeased(shard)) && listing.find(({name}) => name === shard.object);
    const problem = info ? await problemOf(objects, info) : undefined;
    if (problem === undefined) checked.shards.push(shard);
    else checked.invalid.push({object: shard.object, by: 'bytes', reason: `${shard.object} ${problem}`});
  }
  return checked;
}

async function problemOf(objects: Objects, {name, generation, size_bytes, metadata}: ObjectInfo) {
  const read: Read = async (begin, end) => {
    const bytes = await objects.readRange(name, generation, begin, Math.min(end, size_bytes));
    if (bytes === undefined) throw new Invalid('was deleted');
    return Buffer.from(bytes);
  };
  const file = {size: size_bytes, read};
  try {
    const inside = await metadataOf(metadata.format ?? '', file);
    const wrong = IDENTITY.find(key => inside[key] !== metadata[key]);
    return wrong && `says ${wrong} ${inside[wrong]} in its header, and ${metadata[wrong]} in its metadata`;
  } catch (error) {
    if (error instanceof Invalid) return error.message;
    throw error;
  }
}

async function metadataOf(format: string, file: Content): Promise<Record<string, unknown>> {
  if (format === 'pkl.gz') return gzipMetadata(await file.read(0, FIRST_READ + 12));
  return safetensorsMetadata(format === 'safetensors.zst' ? await plainOf(file) : file);
}

/** See gleaner_reader/format/safetensors_header.py. */
async function safetensorsMetadata({size, read}: Content): Promise<Record<string, unknown>> {
  const head = await read(0, FIRST_READ);
  const length = head.length < 8 ? Number.MAX_SAFE_INTEGER : Number(head.readBigUInt64LE());
  if (length > Math.min(size - 8, MOST_HEADER_BYTES)) throw new Invalid('has no header of safetensors');
  const text = 8 + length <= head.length ? head.subarray(8, 8 + length) : await read(8, 8 + length);
  const {__metadata__: metadata, ...tensors} = objectOf(jsonOf(text));
  const places = Object.values(tensors).map(placeOf);
  let end = 0;
  for (const [begin, after] of places.sort((a, b) => a[0] - b[0] || a[1] - b[1])) {
    if (begin !== end) throw new Invalid('has a header whose tensors overlap or leave a gap');
    end = after;
  }
  if (8 + length + end !== size)
    throw new Invalid(`has ${size} bytes, but its header says ${8 + length + end}`);
  return objectOf(metadata);
}

function placeOf(tensor: unknown): [number, number] {
  const {dtype, shape, data_offsets} = objectOf(tensor);
  const [begin, end] = sizesOf(data_offsets);
  const bytes = sizesOf(shape).reduce(
    (product, size) => product * size,
    ITEM_BYTES[String(dtype)] ?? Number.NaN,
  );
  if (begin === undefined || end === undefined || end - begin !== bytes)
    throw new Invalid('has a header with a tensor of another size than its shape');
  return [begin, end];
}

/** The decompressed content of a seekable zstd file, by its table: see gleaner_reader/format/seekable.py. The first frame has the header. */
async function plainOf({size, read}: Content): Promise<Content> {
  const foot = await read(Math.max(0, size - FIRST_READ), size);
  const frames = foot.length < 9 ? 0 : foot.readUInt32LE(foot.length - 9);
  const isTable = foot.length >= 9 && foot.readUInt32LE(foot.length - 4) === 0x8f92eab1;
  const table_bytes = 8 * frames + 17;
  if (!isTable || frames === 0 || table_bytes > Math.min(size, MOST_HEADER_BYTES))
    throw new Invalid('is not a seekable zstd file');
  const table =
    table_bytes <= foot.length ? foot.subarray(-table_bytes) : await read(size - table_bytes, size);
  let [packed, plain] = [0, 0];
  for (let frame = 0; frame < frames; frame++) {
    packed += table.readUInt32LE(8 + 8 * frame);
    plain += table.readUInt32LE(12 + 8 * frame);
  }
  if (packed + table_bytes !== size) throw new Invalid(`has ${size} bytes, but frames of ${packed}`);
  if (Math.max(table.readUInt32LE(8), table.readUInt32LE(12)) > MOST_HEADER_BYTES)
    throw new Invalid('has too large a header');
  const first = await read(0, table.readUInt32LE(8));
  try {
    const content = zstdDecompressSync(first, {maxOutputLength: MOST_HEADER_BYTES});
    return {size: plain, read: async (begin, end) => content.subarray(begin, end)};
  } catch {
    throw new Invalid('has no header of safetensors');
  }
}

/** See gleaner_reader/format/gzip_header.py. */
function gzipMetadata(head: Buffer): Record<string, unknown> {
  const isGzip = head.length >= 16 && head.readUInt32BE() >>> 8 === 0x1f8b08 && (head[3] ?? 0) & 4;
  if (!isGzip || head.toString('latin1', 12, 14) !== 'GL') throw new Invalid('has no header of pkl.gz');
  return objectOf(jsonOf(head.subarray(16, 16 + head.readUInt16LE(14))));
}

function jsonOf(text: Buffer): unknown {
  let values = 0;
  for (const byte of text) if (byte === 0x2c || byte === 0x5b || byte === 0x7b) values += 1;
  if (values > MOST_VALUES) throw new Invalid(`has a header of more than ${MOST_VALUES} values`);
  try {
    return JSON.parse(text.toString('utf8'));
  } catch {
    throw new Invalid('has a header that is not JSON');
  }
}

function objectOf(value: unknown): Record<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new Invalid('has a header of other fields than those of a shard');
  return value as Record<string, unknown>;
}

function sizesOf(values: unknown): number[] {
  const isSize = (value: unknown) => Number.isSafeInteger(value) && Number(value) >= 0;
  if (!Array.isArray(values) || !values.every(isSize)) throw new Invalid('has a header with a wrong number');
  return values as number[];
}
