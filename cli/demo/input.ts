import {once} from 'node:events';
import {createReadStream, createWriteStream} from 'node:fs';
import {mkdir} from 'node:fs/promises';
import {join} from 'node:path';
import {finished} from 'node:stream/promises';
import {createGunzip} from 'node:zlib';
import {streamId} from '../../shared/domain/names.ts';
import {CliError} from '../errors.ts';

/** `tokens` is a guess. */
export type InputStream = {file: string; records: number; tokens: number};

const SAMPLE_TASKS = 48;
const TASK_PROMPT_TOKENS = 250;

/** Writes sample tasks, in the shape of ARC tasks, as JSON lines: the same ones every time. */
function* sampleTasks(count = SAMPLE_TASKS): Generator<string> {
  const random = seeded(7);
  const pick = (n: number) => Math.floor(random() * n);
  for (let index = 0; index < count; index++) {
    const [height, width, colours] = [3 + pick(8), 3 + pick(8), 2 + pick(4)];
    const grid = () => Array.from({length: height}, () => Array.from({length: width}, () => pick(colours)));
    const mirrored = (rows: number[][]) => rows.map(row => [...row].reverse());
    const pair = () => {
      const input = grid();
      return {input, output: mirrored(input)};
    };
    const train = Array.from({length: 2 + pick(3)}, pair);
    yield JSON.stringify({
      task_id: `mirror_${String(index).padStart(4, '0')}`,
      train,
      test: [{input: grid()}],
    });
  }
}

/** A small linear congruential generator: sample data needs to repeat, not to be random. */
export function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

/** How many lines the inputs have; throws where they do not fill `streams` streams. */
export async function countRecords(inputs: string[], streams: number): Promise<number> {
  let total = 0;
  for await (const _ of readLines(inputs)) total++;
  if (total < streams)
    throw new CliError(
      `${total} records do not fill ${streams} streams: give fewer --streams or more --input`,
    );
  return total;
}

/**
 * Splits `total` lines over `count` files as evenly as they go, the first ones longer by one: `stream_000.jsonl` and so on. Lines
 * are bytes and stay as they are, good or bad; only the byte-order mark at the start of a file is left out.
 */
export async function writeStreams(
  folder: string,
  inputs: string[],
  count: number,
  total: number,
): Promise<InputStream[]> {
  await mkdir(folder, {recursive: true});
  const streams: InputStream[] = [];
  const lines = readLines(inputs);
  for (let index = 0; index < count; index++) {
    const records = Math.floor(total / count) + (index < total % count ? 1 : 0);
    const file = join(folder, `stream_${streamId(index)}.jsonl`);
    const out = createWriteStream(file);
    const written = finished(out);
    // An error while lines are still read is told at the end.
    written.catch(() => {});
    let tokens = 0;
    for (let line = 0; line < records && !out.errored; line++) {
      const {value} = await lines.next();
      tokens += guessTokens(value.toString('latin1'));
      if (!out.write(value)) await once(out, 'drain');
    }
    out.end();
    await written;
    streams.push({file, records, tokens});
  }
  return streams;
}

/** A word or a digit is about one token; the text around the grids of an ARC task comes on top. */
function guessTokens(line: string): number {
  const words = line.match(/\d|[a-z]+/gi)?.length ?? 0;
  return line.includes('"train"') ? words + TASK_PROMPT_TOKENS : words;
}

/** Every line of every file, its newline included; a last line without one gets it. */
async function* readLines(inputs: string[]): AsyncGenerator<Buffer> {
  if (inputs.length === 0) for (const task of sampleTasks()) yield Buffer.from(`${task}\n`);
  for (const file of inputs) {
    try {
      yield* splitLines(
        file.endsWith('.gz') ? createReadStream(file).pipe(createGunzip()) : createReadStream(file),
      );
    } catch (error) {
      throw new CliError(`Failed to read --input ${file}: ${(error as Error).message}`);
    }
  }
}

const BYTE_ORDER_MARK = Buffer.from('\ufeff');
const NEWLINE = Buffer.from('\n');

async function* splitLines(source: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  let pending: Buffer[] = [];
  let isFirst = true;
  const take = (last: Buffer) => {
    const line = Buffer.concat([...pending, last]);
    pending = [];
    const marked = isFirst && line.subarray(0, 3).equals(BYTE_ORDER_MARK);
    isFirst = false;
    return marked ? line.subarray(3) : line;
  };
  for await (const chunk of source) {
    let start = 0;
    for (let end = chunk.indexOf(10); end >= 0; end = chunk.indexOf(10, start)) {
      yield take(chunk.subarray(start, end + 1));
      start = end + 1;
    }
    if (start < chunk.length) pending.push(chunk.subarray(start));
  }
  if (pending.length > 0) yield take(NEWLINE);
}
