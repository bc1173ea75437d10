/** The speed and the price of tokens: those of the slowest stage of a TPU. Every command that prices tokens asks here. */

import {bytesText, counted, dollarText} from '../../../client/text/format.ts';
import {
  ASSUMED,
  type Compiled,
  computedTokens,
  type Numbers,
  type Rate,
  type Sampled,
  storedBytes,
} from '../../../client/views/assumptions.ts';
import {usdPerMillion} from '../../../client/views/rates.ts';
import type {RunSpec} from '../../../shared/contracts/spec/spec.ts';
import {chipsOf} from '../../../shared/domain/billing/prices.ts';
import {type UploadRate, uploadRateOf} from '../../../shared/domain/fleet/upload-rates.ts';

/** Work of one TPU. `computing`: tokens a second of all its chips. Bytes are of a token: as values, as objects, and of its stream. */
export type Work = {
  accelerator: string;
  computing: {estimate: number; low: number; high: number; name?: string};
  bytes: {raw: number; stored: number; read: number};
  format: Numbers['format'];
  upload: UploadRate;
};

/** Tokens a second of one TPU with the name of the slowest stage: chips, their way to the host, encoding, upload or download. */
export function rateOfStages({accelerator, computing, bytes, format, upload}: Work): Rate {
  const chips = chipsOf(accelerator)?.chips ?? 1;
  const encode = ASSUMED.encode_bytes_per_s[format] * ASSUMED.cores_per_chip * chips;
  const at = (which: 'estimate' | 'low' | 'high') => {
    const stages: [string, number][] = [
      [computing.name ?? 'computing', computing[which]],
      ['the way from the chips to the host', (chips * ASSUMED.chip_to_host_bytes_per_s[which]) / bytes.raw],
      ['encoding', encode / bytes.raw],
      ['the upload', upload[which] / bytes.stored],
      ['the download', upload[which] / bytes.read],
    ];
    return stages.reduce((slowest, stage) => (stage[1] < slowest[1] ? stage : slowest));
  };
  const [limit, estimate] = at('estimate');
  const made = {bytes_per_s: computing.estimate * bytes.stored, chips_busy: estimate / computing.estimate};
  return {estimate, low: at('low')[1], high: at('high')[1], limit, upload: {...made, rate: upload}};
}

/** The work of a run on one TPU. `compiled`: the program; without it, a share of the peak is assumed. Undefined where no speed is known. */
export function workOf(
  sampled: Sampled,
  numbers: Numbers,
  {accelerator, upload, compiled}: {accelerator: string; upload: UploadRate; compiled?: Compiled | undefined},
): Work | undefined {
  const tokens = sampled.totals.tokens.estimate;
  const assumed = tokens && computedTokens(accelerator, sampled.operations / tokens, numbers.compute_dtype);
  const generates = sampled.generated_tokens > 0;
  const decoding = compiled?.fits ? compiled.generated_tokens_per_s : null;
  if (!assumed || compiled?.fits === false || (generates && !decoding)) return undefined;
  const {utilisation, compiled_speed} = ASSUMED;
  const [speed, range] = compiled
    ? [
        tokens /
          (sampled.computed_tokens / compiled.tokens_per_s + sampled.generated_tokens / (decoding ?? 1)),
        compiled_speed,
      ]
    : [assumed / utilisation.estimate, utilisation];
  return {
    accelerator,
    computing: {
      ...(generates ? {name: 'computing and decoding'} : {}),
      ...{estimate: speed * range.estimate, low: speed * range.low, high: speed * range.high},
    },
    bytes: {
      raw: sampled.totals.shard_bytes.estimate / tokens,
      stored: storedBytes(sampled, numbers).estimate / tokens,
      read: sampled.stream_bytes / tokens,
    },
    format: numbers.format,
    upload,
  };
}

/** The work of a compiled program with full rows. A program whose tokens a sample chooses stores little: its bytes count as none. */
export function workOfProgram(compiled: Compiled & {fits: true}, {format, dtype}: Numbers): Work {
  const {accelerator, tokens_per_s, stored_bytes_per_token} = compiled;
  const raw = stored_bytes_per_token ?? 0;
  return {
    accelerator,
    computing: {estimate: tokens_per_s, low: tokens_per_s, high: tokens_per_s},
    bytes: {raw, stored: raw * ASSUMED.ratio[format][dtype], read: 0},
    format,
    upload: uploadRateOf(accelerator),
  };
}

/** Dollars of a million tokens, where two digits tell types and changes apart. */
export function millionText(usd: number): string {
  return usd >= 1
    ? dollarText(usd)
    : `$${usd.toLocaleString('en-US', {minimumSignificantDigits: 2, maximumSignificantDigits: 2})}`;
}

/** `the upload, at an assumed 1.0 GB/s a host`: the limit, with the rate that the price rests on and where it is from. */
export function limitText({limit, upload}: Pick<Rate, 'limit' | 'upload'>): string {
  if (!upload || !/load$/.test(limit)) return limit;
  const {basis, estimate, source} = upload.rate;
  const speed = `${(estimate / 1e9).toPrecision(2)} GB/s`;
  return `${limit}, at ${basis === 'measured' ? `${speed} as measured by ${source}` : `an assumed ${speed}`}`;
}

/** A line for each reduction. Its weights are those of one copy of the model. */
export function sizesOf({reductions = [], mesh}: Pick<Sampled, 'reductions'> & {mesh?: string}): string[] {
  return reductions.map(({name, bytes_per_token, bytes_per_sample, weight_bytes}) => {
    const per = bytes_per_token === undefined ? 'sample' : 'token';
    const stored = `${name}: ${bytesText(bytes_per_token ?? bytes_per_sample ?? 0)} a ${per}`;
    const weights = weight_bytes > 0 && `${bytesText(weight_bytes)} of weights`;
    return [stored, weights, mesh && `mesh ${mesh}`].filter(Boolean).join(', ');
  });
}

/** A change of a run that stores fewer bytes. `bytes`: of a token, or of a sample. */
type Help = {
  change: string;
  bytes: number;
  per: 'token' | 'sample';
  usd_per_million_tokens: number | null;
};

type Reductions = Partial<Pick<RunSpec, 'sites' | 'features' | 'project' | 'moments'>>;
type Stored = {layers: number; dtype: string; tokens: unknown} & Reductions;

/** Changes that make a run cheaper whose chips wait, the cheapest first. Of equal prices, the one that stores most is first. */
export function helpsOf(
  work: Work,
  {layers, dtype, tokens, sites, features, project, moments}: Stored,
  {tokens_per_sample, usd_per_hour}: {tokens_per_sample: number; usd_per_hour: number | null},
): Help[] {
  const now = rateOfStages(work).estimate;
  const value_bytes = sites?.length === 0 ? 1 : ({fp32: 4, int8: 1}[dtype] ?? 2);
  const isAll = tokens === 'all' && !(features ?? project ?? moments); // they exclude some values of tokens
  const changes: [change: string, share: number, per: Help['per']][] = [
    ['tokens "random:64"', isAll ? 64 / tokens_per_sample : 1, 'sample'],
    ['tokens "::8"', isAll ? 1 / 8 : 1, 'token'],
    ['tokens "last" or "mean"', isAll ? 1 / tokens_per_sample : 1, 'sample'],
    ['dtype int8', 1 / value_bytes, 'token'],
    [`half of the ${layers} layers`, layers > 1 ? 1 / 2 : 1, 'token'],
    ['one layer', layers > 2 ? 1 / layers : 1, 'token'],
  ];
  return changes
    .flatMap(([change, share, per]) => {
      if (share >= 1) return [];
      const {raw, stored, read} = work.bytes;
      const rate = rateOfStages({...work, bytes: {raw: raw * share, stored: stored * share, read}}).estimate;
      const bytes = stored * share * (per === 'sample' ? tokens_per_sample : 1);
      return rate > now
        ? [
            {
              ...{rate, share},
              help: {change, bytes, per, usd_per_million_tokens: usdPerMillion(usd_per_hour, rate * 3600)},
            },
          ]
        : [];
    })
    .sort((a, b) => b.rate - a.rate || b.share - a.share)
    .map(({help}) => help);
}

/** A line about chips that wait, and one for each change that helps. */
export function helpLines(
  accelerator: string,
  {upload}: Pick<Rate, 'upload'>,
  {layers, dtype, sites}: Omit<Stored, 'tokens'>,
  helps: readonly Help[],
): string[] {
  if (!upload || helps.length === 0) return [];
  const needs = `the chips produce ${bytesText(upload.bytes_per_s)} a second for ${counted(layers, 'layer')}${sites?.length === 0 ? '' : ` in ${dtype}`}`;
  const busy = `are busy ${Math.max(1, Math.round(upload.chips_busy * 100))} % of the time on ${accelerator}`;
  return [
    `${needs}, and ${busy}; this helps:`,
    ...helps.map(({change, bytes, per, usd_per_million_tokens: usd}) => {
      const price = usd === null ? '' : `, ${millionText(usd)} a million tokens`;
      return `  ${change}: ${bytesText(bytes)} a ${per}${price}`;
    }),
  ];
}
