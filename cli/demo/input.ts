import {once} from 'node:events';
import {createReadStream, createWriteStream} from 'node:fs';
import {mkdir} from 'node:fs/promises';
import {join} from 'node:path';
import {finished} from 'node:stream/promises';
import {createGunzip} from 'node:zlib';
import {streamId} from '../../shared/domain/names.ts';
import {CliError} from '../errors.ts';

/** Stream of a demo as a local file. `tokens` is an estimate. */
export type InputStream = {file: string; records: number; tokens: number};

const SAMPLE_TASKS = 160;
const TASK_PROMPT_TOKENS = 250;

/** Sample tasks in the format of ARC tasks, as JSON lines. Every call yields the same tasks. */
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

/** Linear congruential generator of numbers in [0, 1): the same seed gives the same sample data. */
export function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

/** Counts the lines of the inputs. Throws where the inputs have fewer lines than `streams`. */
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
 * Splits `total` lines over the files `stream_000.jsonl` and so on. The first files have one line more where `count` does not
 * divide `total`. The bytes of a line never change; only the byte-order mark at the start of an input is removed.
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
    // The `await` below throws an error that happens while lines are read.
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

/** Estimates one token for each word and digit, and the prompt around the grids of an ARC task. */
function guessTokens(line: string): number {
  const words = line.match(/\d|[a-z]+/gi)?.length ?? 0;
  return line.includes('"train"') ? words + TASK_PROMPT_TOKENS : words;
}

/** Lines of every file with their newline, which is added to a last line without it. */
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
