/** Which rows go into which stream. */
import {CliError} from '../../client/text/errors.ts';
import {counted} from '../../client/text/format.ts';

export type SplitOptions = {
  num_streams: number;
  max_samples?: number | undefined;
  max_samples_per_stream?: number | undefined;
  start_index?: number | undefined;
  /** Row after the last one. */
  end_index?: number | undefined;
  shuffle_seed?: number | undefined;
};

/** Samples of each stream, from the rows `first` to `end` (half open). */
export type Split = {first: number; end: number; sizes: number[]; samples: number};

/** Rows that must be counted: beyond them the split does not change. Infinity for all. */
export function rowsToCount(options: SplitOptions): number {
  const {start_index = 0, end_index = Number.POSITIVE_INFINITY, shuffle_seed} = options;
  return shuffle_seed === undefined ? Math.min(end_index, start_index + mostSamples(options)) : end_index;
}

/** Throws `CliError` for fewer samples than streams. */
export function planSplit(rows: number, options: SplitOptions): Split {
  const {num_streams, start_index = 0, end_index = rows} = options;
  const first = Math.min(start_index, rows);
  const end = Math.max(first, Math.min(end_index, rows));
  const samples = Math.min(end - first, mostSamples(options));
  if (samples < num_streams) throw tooFew(samples, rows, options);
  return {first, end, samples, sizes: spread(samples, num_streams)};
}

/** Sizes of `parts` parts. The first parts have one more where `parts` does not divide `total`. */
export function spread(total: number, parts: number): number[] {
  const least = Math.floor(total / parts);
  return Array.from({length: parts}, (_, index) => least + (index < total % parts ? 1 : 0));
}

function mostSamples({num_streams, max_samples, max_samples_per_stream}: SplitOptions): number {
  const inStreams = (max_samples_per_stream ?? Number.POSITIVE_INFINITY) * num_streams;
  return Math.min(max_samples ?? Number.POSITIVE_INFINITY, inStreams);
}

function tooFew(
  samples: number,
  rows: number,
  {num_streams, start_index, end_index}: SplitOptions,
): CliError {
  if (rows === 0 && end_index !== 0)
    return new CliError('The sources have no rows: name files with at least one row');
  const range =
    start_index === undefined && end_index === undefined
      ? ''
      : `; the sources have ${counted(rows, 'row')}, and the range is ${start_index ?? 0} to ${end_index ?? 'the end'}`;
  return new CliError(
    `${counted(samples, 'sample')} cannot fill ${counted(num_streams, 'stream')}: ask for at most ${counted(Math.max(1, samples), 'stream')}, or give more samples${range}`,
  );
}
