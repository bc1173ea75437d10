import {FORMATS} from '../streams/sources/formats.ts';
import {LIMITS, MOST_ROW_MIB} from '../streams/sources/limits.ts';
import {count, delimiter, folder, index, positive, runId, text, whole, words} from '../terminal/arguments.ts';
import type {GleanerCommand} from '../terminal/command.ts';

/** Template of the command line, where `\\n` and `\\t` stand for a newline and a tab. */
function template(given: string): string {
  return text(given).replace(/\\([nt\\])/g, (_, letter) => ({n: '\n', t: '\t'})[letter as 'n' | 't'] ?? '\\');
}

export function addStreamCommands(program: GleanerCommand): void {
  const streams = program.about('streams', 'split a dataset into streams, and upload streams');
  streams
    .about('create', 'split a dataset into streams, with each row in exactly one stream')
    .argument(
      '<source...>',
      'file, folder, pattern such as data/*.csv, or data set of Hugging Face as ORG/NAME',
    )
    .requiredOption('--num-streams <n>', 'number of streams', count)
    .option('--output-dir <folder>', 'folder of the streams', folder, 'data/streams')
    .option('--max-samples <n>', 'most samples of all streams together', count)
    .option('--max-samples-per-stream <n>', 'most samples of each stream', count)
    .option('--start-index <i>', 'first row, from 0', index)
    .option('--end-index <j>', 'row after the last one', index)
    .option('--column <name>', 'column that becomes the record: text, messages or token ids', text)
    .option('--keep <columns>', 'columns to copy beside --column or --template, such as id,source', words)
    .alone(
      '--template <text>',
      'text of each record, such as "Q: {question}\\nA: {answer}"',
      ['column', 'as'],
      template,
    )
    .choice('--as <kind>', 'arc: the column has examples of an ARC task (default column: examples)', ['arc'])
    .option('--shuffle-seed <n>', 'shuffle the rows; the same seed gives the same order', index)
    .choice('--format <format>', 'format of the files (default: by their names)', FORMATS)
    .option(
      '--delimiter <character>',
      'character between the columns of CSV, or tab (default: that of the header)',
      delimiter,
    )
    .option('--field <key>', 'key of the rows, in a JSON file of one object', text)
    .option(
      '--max-row-mib <n>',
      `most MiB of one row (default: ${LIMITS.row_bytes >> 20})`,
      whole(1, MOST_ROW_MIB),
    )
    .option('--recursive', 'read the folders inside of a folder')
    .option(
      '--revision <revision>',
      'branch, tag or commit of a data set (default: the converted Parquet)',
      text,
    )
    .option('--split <split>', 'split of a data set', text, 'train')
    .option('--config <name>', 'configuration of a data set', text)
    .option('--dry-run', 'count the rows and print the plan, and write nothing')
    .option('--force', 'replace other streams in the folder')
    .noCheck('write records without a field that a run reads by itself')
    .json()
    .examples(
      'gleaner streams create prompts.jsonl --num-streams 4 --output-dir streams',
      "gleaner streams create 'data/*.csv' --num-streams 8 --template 'Q: {question}\\nA: {answer}'",
      'gleaner streams create openai/gsm8k --config main --column question --num-streams 8 --max-samples 1000',
      'gleaner streams create tasks.parquet --as arc --column examples --num-streams 32 --max-samples 200000',
    )
    .action(async (sources, options) =>
      (await import('../streams/create-streams.ts')).create(sources, options),
    );
  streams
    .about(
      'upload',
      'upload the streams of a folder to a run; the same command continues after an interruption',
    )
    .argument('<folder>', 'folder of streams, perhaps with a run.json', folder)
    .requiredOption('--run <run>', 'run id', runId)
    .option('--parallel <n>', 'streams that are uploaded at once', positive, 8)
    .noCheck()
    .onCloud('folder of a running local cloud')
    .dryRun()
    .examples(
      'gleaner streams upload streams --run my-run',
      'gleaner streams upload streams --run my-run --parallel 16',
      'gleaner streams upload streams --run my-run --dry-run',
    )
    .action(async (from, options) => (await import('../run/upload.ts')).upload(from, options));
}
