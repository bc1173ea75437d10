/** ARC tasks from a column of examples: the last example is the test, without its output. */
type Grid = number[][];

/** The task, or the problem of the value. Examples are `[input, output]` or `{input, output}`. */
export function arcTask(value: unknown, index: number): object | string {
  if (!Array.isArray(value)) return 'it is not a list of examples';
  if (value.length < 2) return `it has ${value.length} of at least 2 examples: the last one becomes the test`;
  const pairs: {input: Grid; output: Grid}[] = [];
  for (const [number, example] of value.entries()) {
    const [input, output] = pairOf(example);
    const problem = gridProblem(input) ?? gridProblem(output);
    if (problem) return `example ${number + 1} ${problem}`;
    pairs.push({input: input as Grid, output: output as Grid});
  }
  const test = pairs.pop();
  const task_id = `task_${index.toString(16).padStart(8, '0')}`;
  return {task_id, train: pairs, test: [{input: test?.input}]};
}

function pairOf(example: unknown): [unknown, unknown] {
  if (Array.isArray(example)) return [example[0], example[1]];
  const {input, output} = (example ?? {}) as {input?: unknown; output?: unknown};
  return [input, output];
}

function gridProblem(grid: unknown): string | undefined {
  if (!Array.isArray(grid) || grid.length === 0) return 'is not a pair of grids';
  const rows = grid as unknown[];
  const width = Array.isArray(rows[0]) ? rows[0].length : 0;
  if (width === 0) return 'has a grid without rows of cells';
  for (const row of rows) {
    if (!Array.isArray(row) || row.length !== width) return 'has a grid with rows of different lengths';
    if (!row.every(isDigit)) return 'has a cell that is not a digit 0 to 9';
  }
  return undefined;
}

function isDigit(cell: unknown): boolean {
  return Number.isInteger(cell) && (cell as number) >= 0 && (cell as number) <= 9;
}
