/** The streams of a demo: of the files that a person names, or of sample tasks. */
import {writeFile} from 'node:fs/promises';
import {join} from 'node:path';
import {type CreateOptions, type CreateReport, createStreams} from '../streams/create-streams.ts';
import {firstLines} from '../streams/sources/lines.ts';
import {planSplit} from '../streams/split.ts';

const SAMPLE_TASKS = 24;
const TASK_PROMPT_TOKENS = 250;

/** Sample tasks in the format of ARC tasks, as JSON lines: each mirrors grids. Every call yields the same tasks. */
function sampleTasks(): string[] {
  return Array.from({length: SAMPLE_TASKS}, (_, task) => {
    const [height, width, colours] = [3 + (task % 8), 3 + ((task * 5) % 7), 2 + (task % 4)];
    const cell = (which: number, y: number, x: number) =>
      (task + 3 * which + y * y + x * (x + which)) % colours;
    const grid = (which: number) =>
      Array.from({length: height}, (_, y) => Array.from({length: width}, (_, x) => cell(which, y, x)));
    const pair = (_: unknown, which: number) => {
      const input = grid(which);
      return {input, output: input.map(row => row.toReversed())};
    };
    const train = Array.from({length: 2 + (task % 3)}, pair);
    const task_id = `mirror_${String(task).padStart(4, '0')}`;
    return JSON.stringify({task_id, train, test: [{input: grid(train.length)}]});
  });
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
