/** Options that commands share, and parsers of arguments. */
import {InvalidArgumentError, Option} from 'commander';
import {MAX_TIMEOUT_S} from '../../shared/domain/bounds.ts';
import {isRunId, isZone, JOB, streamId} from '../../shared/domain/names.ts';

export const port = (least = 1) =>
  new Option('--port <port>', 'port of the local cloud').argParser(text => portNumber(text, least));
export const dir = (text: string) => new Option('--dir <folder>', text).argParser(folder);
/** Text of a help page behind the options. */
export const examples = (...lines: string[]) => `\nExamples:\n${lines.map(line => `  ${line}`).join('\n')}`;
export const yes = () => new Option('--yes', 'do not ask');
export const json = () => new Option('--json', 'print JSON for programs');

/** Port with a lower bound: 0 for a server, which may use any free port, and 1 for a client. */
export function portNumber(text: string, least: number): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < least || value > 65535)
    throw new InvalidArgumentError(`a port is ${least} to 65535.`);
  return value;
}

export function positive(text: string): number {
  return whole(text, 1);
}

export function bytes(text: string): number {
  const value = Number(text);
  if (!/^\d{3,12}$/.test(text)) throw new InvalidArgumentError('a whole number of bytes from 100 up.');
  return value;
}

export function rate(text: string): number {
  const value = Number(text);
  if (!(value > 0 && Number.isFinite(value))) throw new InvalidArgumentError('a number above 0.');
  return value;
}

export function natural(text: string): number {
  return whole(text, 0);
}

export function whole(text: string, least: number, most = 9999): number {
  if (!/^\d{1,9}$/.test(text) || Number(text) < least || Number(text) > most)
    throw new InvalidArgumentError(`a whole number from ${least} to ${most}.`);
  return Number(text);
}

/** Size of a shard in GB: `1GB`, `500MB`, or a number of GB. */
export function shardSize(given: string): number {
  const [, value, unit = 'gb'] = /^(\d{1,6}(?:\.\d{1,6})?)\s?(gb|mb|kb)?$/.exec(given.toLowerCase()) ?? [];
  if (value === undefined || Number(value) === 0)
    throw new InvalidArgumentError('a size such as 1GB or 500MB.');
  return Number(value) / {gb: 1, mb: 1e3, kb: 1e6}[unit as 'gb' | 'mb' | 'kb'];
}

export function folder(text: string): string {
  if (text === '') throw new InvalidArgumentError('a folder, such as . for the current one.');
  return text;
}

export function runId(text: string): string {
  if (!isRunId(text))
    throw new InvalidArgumentError('a run id is 1 to 39 of a-z, 0-9 and -, starting with a letter.');
  return text;
}

export function modelName(text: string): string {
  if (text === '') throw new InvalidArgumentError('a hub id, or a folder in the Hugging Face layout.');
  return text;
}

export function zone(text: string): string {
  if (!isZone(text)) throw new InvalidArgumentError('a zone such as us-central1-a.');
  return text;
}

export const dryRun = () => new Option('--dry-run', 'change nothing: print the gcloud commands');

export function text(given: string): string {
  if (given === '') throw new InvalidArgumentError('a text that is not empty.');
  return given;
}

export function words(given: string): string[] {
  return given.split(',').map(word => text(word.trim()));
}

export function integer(given: string): number {
  if (!/^-?\d{1,9}$/.test(given)) throw new InvalidArgumentError('a whole number.');
  return Number(given);
}

/** Priority of a run or a job. */
export function priority(given: string): number {
  const value = integer(given);
  if (Math.abs(value) > 1000) throw new InvalidArgumentError('a whole number from -1000 to 1000.');
  return value;
}

export function seconds(given: string): number {
  const value = Number(given);
  if (!/^\d+(\.\d+)?$/.test(given) || value <= 0 || value > MAX_TIMEOUT_S)
    throw new InvalidArgumentError(
      `seconds above 0 and up to ${MAX_TIMEOUT_S}, without a unit, such as 300.`,
    );
  return value;
}

export function dollars(given: string): number {
  const value = Number(given);
  if (!/^\d+(\.\d+)?$/.test(given) || value <= 0)
    throw new InvalidArgumentError('dollars above 0, such as 12.50.');
  return value;
}

/** Dollars, or `none` for no limit. `budgetField` makes the field of it: commander replaces a null by an empty text. */
export type Budget = number | 'none';

export function budget(given: string): Budget {
  return given === 'none' ? given : dollars(given);
}

/** The field `budget_usd` of an option: null is no limit, and undefined leaves the field away. */
export function budgetField(given: Budget | undefined): number | null | undefined {
  return given === 'none' ? null : given;
}

/** Number of a stream as its document has it: `7` and `007` are `007`. */
export function streamNumber(given: string): string {
  if (!/^\d{1,9}$/.test(given)) throw new InvalidArgumentError('the number of a stream, such as 007.');
  return streamId(Number(given));
}

/** Lines to print: infinity for `all`. */
export function tail(given: string): number {
  if (given === 'all') return Number.POSITIVE_INFINITY;
  if (!/^\d{1,9}$/.test(given)) throw new InvalidArgumentError('a whole number of lines, or all.');
  return Number(given);
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

export function jobName(given: string): string {
  if (!JOB.test(given))
    throw new InvalidArgumentError('a job id is 1 to 100 letters, digits, dashes and underscores.');
  return given;
}
