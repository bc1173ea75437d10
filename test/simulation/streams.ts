/** Streams of a few lines, and the shards that they make: they follow from the stream alone, as for a real worker. */
import {crc32} from 'node:zlib';

const LINES_PER_SHARD = 2;
const BAD_LINE = 'not JSON';

export type Plan = {shard: number; first: number; last: number; lines: string[]; final: boolean};

export function aStreamOf(lines: number, name: string, bad: number | undefined): string {
  const text = Array.from({length: lines}, (_, line) =>
    line === bad ? BAD_LINE : `{"text":"${name} ${line}"}`,
  );
  return `${text.join('\n')}\n`;
}

const planned = new Map<string, Plan[]>();

export function planShards(text: string): Plan[] {
  // The same few streams are asked about at every commit.
  if (planned.size > 1000) planned.clear();
  const known = planned.get(text) ?? plan(text);
  planned.set(text, known);
  return known;
}

function plan(text: string): Plan[] {
  const lines = text.replace(/\n$/, '').split('\n');
  const plans: Plan[] = [];
  for (let first = 0; first < lines.length; first += LINES_PER_SHARD) {
    const part = lines.slice(first, first + LINES_PER_SHARD);
    const last = first + part.length - 1;
    plans.push({shard: plans.length + 1, first, last, lines: part, final: last === lines.length - 1});
  }
  return plans;
}

export function storedText(plan: Plan): string {
  return good(plan).join('\n');
}

export function good(plan: Plan): string[] {
  return plan.lines.filter(line => line !== BAD_LINE);
}

export function shardMetadata(
  plan: Plan,
  work: {run: string; stream: string; spec_hash: string; dataset: {crc32c: string}},
  epoch: number,
): Record<string, string> {
  const samples = good(plan);
  return {
    schema: 'gleaner/1',
    run: work.run,
    stream: work.stream,
    shard: String(plan.shard),
    first_sample: String(plan.first),
    last_sample: String(plan.last),
    samples: String(samples.length),
    rejected: String(plan.lines.length - samples.length),
    tokens: String(samples.join('').length),
    spec_hash: work.spec_hash,
    stream_crc32c: work.dataset.crc32c,
    tokens_sha256: String(crc32(samples.join('\n'))),
    epoch: String(epoch),
    format: 'safetensors',
    final: String(plan.final),
  };
}
