/** Contradictions between keys of `run.json`, or between entries of one key. */
import {SLICE, type SpecValues} from './spec-keys.ts';

type Issue = [path: (string | number)[], message: string];

export function* contradictions(spec: SpecValues): Generator<Issue> {
  const {format, dtype, sites = [], layers, tokens, keep = [], record = {}, max_seq_length = 2048} = spec;
  const {affinity, stream_offset} = spec;
  if (format === 'pkl.gz' && (dtype === 'bf16' || dtype === 'int8'))
    yield [['dtype'], 'expected fp32 or fp16, which pkl.gz can hold'];
  if (format === 'pkl.gz' && sites.length > 1)
    yield [['sites'], 'expected one site, as pkl.gz holds no more: ask for safetensors'];
  if (typeof layers === 'string') {
    const [first = 0, last = 0] = layers.split('-').map(Number);
    if (first > last) yield [['layers'], `expected a range from low to high, "${last}-${first}"`];
  }
  for (const [key, values] of Object.entries({sites, layers, tokens, keep}))
    if (Array.isArray(values)) yield* repetitions(key, values);
  if (Array.isArray(tokens)) yield* beyond(tokens, max_seq_length);
  if (typeof tokens === 'string' && isEmptySlice(tokens, max_seq_length))
    yield [
      ['tokens'],
      `expected a slice that holds tokens of a sample of at most ${max_seq_length} (max_seq_length)`,
    ];
  if ((stream_offset ?? 0) > 0 && affinity !== 'fixed')
    yield [['stream_offset'], 'expected affinity "fixed" beside it: any TPU may have any stream otherwise'];
  if (record.field && record.template)
    yield [['record'], 'expected field or template, not both: a template names its fields itself'];
  if (record.template && (record.encoder || (record.predictions_per_task ?? 1) > 1))
    yield [
      ['record'],
      'expected a template, or encoder and predictions_per_task: those are of ARC tasks alone',
    ];
}

function* repetitions(key: string, values: readonly (string | number)[]): Generator<Issue> {
  const again = values.findIndex((value, index) => values.indexOf(value) < index);
  if (again >= 0) yield [[key, again], 'expected one that was not named before'];
}

function* beyond(positions: readonly number[], max_seq_length: number): Generator<Issue> {
  const index = positions.findIndex(position => position >= max_seq_length || position < -max_seq_length);
  if (index >= 0)
    yield [
      ['tokens', index],
      `expected a position from -${max_seq_length} to ${max_seq_length - 1}, as samples have at most ${max_seq_length} tokens (max_seq_length)`,
    ];
}

/** True if a Python slice is empty for every sample of up to `length` tokens. */
function isEmptySlice(tokens: string, length: number): boolean {
  const match = SLICE.exec(tokens);
  if (!match) return false;
  const start = Number(match[1] ?? 0);
  if (start >= length) return true;
  if (match[2] === undefined) return false;
  const stop = Number(match[2]);
  return stop === 0 || stop <= -length || (start < 0 === stop < 0 && start >= stop);
}
