import {mkdir} from 'node:fs/promises';
import {join} from 'node:path';
import {CliError} from '../../client/text/errors.ts';
import {bytesOf} from '../streams/sources/file-source.ts';
import {lineBatches} from '../streams/sources/lines.ts';
import {spread} from '../streams/split.ts';
import {StreamWriter} from '../streams/stream-writer.ts';

/** Stream of a demo as a local file. `tokens` is an estimate. */
export type InputStream = {file: string; records: number; tokens: number};

const SAMPLE_TASKS = 64;
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
  for await (const lines of readLines(inputs)) total += lines.length;
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
  const writer = new StreamWriter(folder, spread(total, count));
  const tokens: number[] = [];
  try {
    for await (const lines of readLines(inputs))
      for (const line of lines) {
        const stream = writer.done.length;
        if (stream === count) break;
        tokens[stream] = (tokens[stream] ?? 0) + guessTokens(line.toString('latin1'));
        await writer.write(line);
      }
  } finally {
    await writer.abandon();
  }
  return writer.done.map(({file, samples}, index) => ({
    file: join(folder, file),
    records: samples,
    tokens: tokens[index] ?? 0,
  }));
}

/** Estimates one token for each word and digit, and the prompt around the grids of an ARC task. */
function guessTokens(line: string): number {
  const words = line.match(/\d|[a-z]+/gi)?.length ?? 0;
  return line.includes('"train"') ? words + TASK_PROMPT_TOKENS : words;
}

/** Lines of every file without their newline, in batches. */
async function* readLines(inputs: string[]): AsyncGenerator<Buffer[]> {
  if (inputs.length === 0) yield [...sampleTasks()].map(task => Buffer.from(task));
  const watch = {stop: new AbortController().signal, moved: () => {}};
  for (const file of inputs) yield* lineBatches(bytesOf(file, watch));
}
