/** The streams of a demo: of the files that a person names, or of sample tasks. */
import {writeFile} from 'node:fs/promises';
import {join} from 'node:path';
import {type CreateOptions, type CreateReport, createStreams} from '../streams/create-streams.ts';
import {firstLines} from '../streams/sources/lines.ts';
import {planSplit} from '../streams/split.ts';

const SAMPLE_TASKS = 64;
const TASK_PROMPT_TOKENS = 250;

/** Sample tasks in the format of ARC tasks, as JSON lines. Every call yields the same tasks. */
function sampleTasks(): string[] {
  const random = seeded(7);
  const pick = (n: number) => Math.floor(random() * n);
  return Array.from({length: SAMPLE_TASKS}, (_, index) => {
    const [height, width, colours] = [3 + pick(8), 3 + pick(8), 2 + pick(4)];
    const grid = () => Array.from({length: height}, () => Array.from({length: width}, () => pick(colours)));
    const mirrored = (rows: number[][]) => rows.map(row => [...row].reverse());
    const pair = () => {
      const input = grid();
      return {input, output: mirrored(input)};
    };
    const train = Array.from({length: 2 + pick(3)}, pair);
    return JSON.stringify({
      task_id: `mirror_${String(index).padStart(4, '0')}`,
      train,
      test: [{input: grid()}],
    });
  });
}

/** Linear congruential generator of numbers in [0, 1): the same seed gives the same sample data. */
export function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

/** Throws `CliError` where the inputs do not fill the streams, or lie in the folder of the demo. */
export async function checkInput(input: readonly string[], streams: number, dir: string): Promise<void> {
  if (input.length === 0) planSplit(SAMPLE_TASKS, {num_streams: streams});
  else await createStreams(input, {...optionsOf(dir, streams), dry_run: true});
}

/** Writes the streams into a folder, as `gleaner streams create` does. `tokens`: about those of the first stream. */
export async function writeStreams(
  folder: string,
  input: readonly string[],
  streams: number,
): Promise<CreateReport & {tokens: number}> {
  const tasks = `${folder}-tasks.jsonl`;
  if (input.length === 0) await writeFile(tasks, sampleTasks().join('\n'));
  const report = await createStreams(input.length > 0 ? input : [tasks], optionsOf(folder, streams));
  const [first] = report.streams;
  const lines = await firstLines(join(folder, first?.file ?? ''), SAMPLE_TASKS);
  const tokens = lines.reduce((sum, line) => sum + guessTokens(line), 0) / Math.max(1, lines.length);
  return {...report, tokens: tokens * (first?.samples ?? 0)};
}

function optionsOf(output_dir: string, num_streams: number): CreateOptions {
  return {output_dir, num_streams, check: false};
}

/** Estimates one token for each word and digit, and the prompt around the grids of an ARC task. */
function guessTokens(line: string): number {
  const words = line.match(/\d|[a-z]+/gi)?.length ?? 0;
  return line.includes('"train"') ? words + TASK_PROMPT_TOKENS : words;
}
