/** Parsers of arguments. */
import {InvalidArgumentError} from 'commander';
import {MAX_TIMEOUT_S} from '../../shared/domain/bounds.ts';
import {POOL} from '../../shared/domain/deployment.ts';
import {isRunId, isZone, parseWorkerName, streamId} from '../../shared/domain/names.ts';
import {type NumberForm, whole as wholeForm} from '../../shared/domain/records/field.ts';
import {ROW_TOKENS} from '../../shared/domain/records/spec-keys.ts';

/** The word `none`. Commander would replace a null of a parser, so `GleanerCommand` puts the null in its place. */
export const NONE = Symbol('none');

/** Parser of the texts that `isValid` accepts. `wanted` names them. */
function valid(isValid: (given: string) => boolean, wanted: string) {
  return (given: string): string => {
    if (isValid(given)) return given;
    throw new InvalidArgumentError(wanted);
  };
}

/** Parser of the numbers that `isValid` accepts, in texts of a pattern. */
function numeric(pattern: RegExp, isValid: (value: number) => boolean, wanted: string) {
  return (given: string): number => {
    if (pattern.test(given) && isValid(Number(given))) return Number(given);
    throw new InvalidArgumentError(wanted);
  };
}

/** Parser that also takes the word `none`. */
export function orNone<T>(parse: (given: string) => T) {
  return (given: string): T | typeof NONE => (given === 'none' ? NONE : parse(given));
}

export const text = valid(given => given !== '', 'a text that is not empty.');
export const folder = valid(given => given !== '', 'a folder, such as . for the current one.');
export const modelName = valid(given => given !== '', 'a hub id, or a folder in the Hugging Face layout.');
export const runId = valid(isRunId, 'a run id is 1 to 39 of a-z, 0-9 and -, starting with a letter.');
export const poolName = valid(
  given => POOL.test(given),
  'a pool name is 1 to 31 of a-z, 0-9 and -, starting with a letter.',
);
export const tpuName = valid(
  given => parseWorkerName(given) !== undefined,
  'the name of a TPU, such as tpu-us-central1-a-0.',
);
export const digest = valid(given => /^[0-9a-f]{64}$/.test(given), 'a sha256: 64 hexadecimal digits.');
export const digestStart = valid(
  given => /^[0-9a-f]{8,64}$/.test(given),
  'the first 8 or more characters of a sha256.',
);
export const zone = valid(isZone, 'a zone such as us-central1-a.');

/** Parser of the numbers of a declared field. */
export function numberOf({whole, least = 0, above, most}: NumberForm) {
  const range = above === undefined ? `from ${least} to ${most}` : `above ${above} and up to ${most}`;
  return numeric(
    whole ? /^-?\d{1,10}$/ : /^\d+(\.\d+)?$/,
    value => (above === undefined ? value >= least : value > above) && value <= most,
    `a ${whole ? 'whole ' : ''}number ${range}.`,
  );
}

export const whole = (least: number, most = 9999) => numberOf(wholeForm(least, most));
export const rowTokens = numeric(
  /^\d{3,6}$/,
  value => ROW_TOKENS.some(each => each === value),
  `a power of two from ${ROW_TOKENS[0]} to ${ROW_TOKENS.at(-1)}.`,
);
export const natural = whole(0);
/** Whole numbers of an option that is given several. */
export const texts = (given: string, before: string[] = []): string[] => [...before, given];
export const naturals = (text: string, before: number[] = []): number[] => [...before, natural(text)];
export const positive = whole(1);
/** Number of rows, samples or streams, and the place of a row. */
export const count = whole(1, 9_999_999_999);
export const index = whole(0, 9_999_999_999);
/** Port with a lower bound: 0 for a server, which may use any free port, and 1 for a client. */
export const portFrom = (least: number) =>
  numeric(/^\d{1,5}$/, value => value >= least && value <= 65535, `a port is ${least} to 65535.`);
export const bytes = numeric(/^\d{3,12}$/, () => true, 'a whole number of bytes from 100 up.');
export const rate = numeric(/./, value => value > 0 && Number.isFinite(value), 'a number above 0.');
export const integer = numeric(/^-?\d{1,9}$/, () => true, 'a whole number.');
export const priority = whole(-1000, 1000);
/** Seconds of a duration: `300`, `90s`, `15m`, `2h` or `1d`. */
export function seconds(given: string): number {
  const [, value, unit] = /^(\d{1,9}(?:\.\d+)?)([smhd]?)$/.exec(given) ?? [];
  const found = Number(value) * (UNITS_S[unit || 's'] ?? 0);
  if (found > 0 && found <= MAX_TIMEOUT_S) return found;
  throw new InvalidArgumentError(
    `seconds above 0 and up to ${MAX_TIMEOUT_S}, or a time such as 90s, 15m, 2h or 1d.`,
  );
}
export const dollars = numeric(/^\d+(\.\d+)?$/, value => value > 0, 'dollars above 0, such as 12.50.');

/** Size of a shard in GB, such as `1GB` or `500MB`. A number alone may be meant in MB. */
export function shardSize(given: string): number {
  const [, value, unit] = /^(\d{1,6}(?:\.\d{1,6})?)\s?(gb|mb|kb)$/.exec(given.toLowerCase()) ?? [];
  if (value === undefined || Number(value) === 0)
    throw new InvalidArgumentError('a size with its unit, such as 1GB or 500MB.');
  return Number(value) / {gb: 1, mb: 1e3, kb: 1e6}[unit as 'gb' | 'mb' | 'kb'];
}

export function jsonObject(given: string): object {
  try {
    const value: unknown = JSON.parse(given);
    if (value !== null && typeof value === 'object' && !Array.isArray(value)) return value;
  } catch {}
  throw new InvalidArgumentError('an object of JSON, such as \'{"enable_thinking": false}\'.');
}

/** Character between the columns of CSV. */
export function delimiter(given: string): string {
  if (given === 'tab' || given === '\\t') return '\t';
  if (/^[^"\r\n]$/u.test(given)) return given;
  throw new InvalidArgumentError("one character such as ';', or the word tab.");
}

export function words(given: string): string[] {
  return given.split(',').map(word => text(word.trim()));
}

/** Number of a stream as its document has it: `7` and `007` are `007`. */
export function streamNumber(given: string): string {
  return streamId(numeric(/^\d{1,9}$/, () => true, 'the number of a stream, such as 007.')(given));
}

/** Lines to print: infinity for `all`. */
export function tail(given: string): number {
  if (given === 'all') return Number.POSITIVE_INFINITY;
  return numeric(/^\d{1,9}$/, () => true, 'a whole number of lines, or all.')(given);
}

const UNITS_S: Record<string, number> = {s: 1, m: 60, h: 3600, d: 86_400};

/** An instant, or the time before now such as `10m`, as an instant. */
export function since(given: string): string {
  const [, count, unit] = /^(\d{1,6})([smhd])$/.exec(given) ?? [];
  if (count !== undefined && unit !== undefined)
    return new Date(Date.now() - Number(count) * (UNITS_S[unit] ?? 0) * 1000).toISOString();
  if (/^\d{4}-/.test(given)) return instant(given);
  throw new InvalidArgumentError('a time such as 90s, 10m, 2h, 1d or 2026-01-02T03:04:05Z.');
}

/** An instant, as the contracts take it: in UTC. */
export function instant(given: string): string {
  if (Number.isNaN(Date.parse(given)) || !/^\d{4}-\d\d-\d\d([T ].*(Z|[+-]\d\d:?\d\d))$/.test(given))
    throw new InvalidArgumentError('a time with its zone, such as 2026-01-02T03:04:05Z.');
  return new Date(given).toISOString();
}

export function pair(given: string): [string, string] {
  const at = given.indexOf('=');
  if (at < 1) throw new InvalidArgumentError('KEY=VALUE.');
  return [given.slice(0, at), given.slice(at + 1)];
}

export function trueOrFalse(given: string): boolean {
  if (given !== 'true' && given !== 'false') throw new InvalidArgumentError('true or false.');
  return given === 'true';
}
