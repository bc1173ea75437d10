import {canonicalJson} from '../../shared/contracts/spec/spec.ts';
import {runRecords} from '../../shared/control-plane/documents/documents.ts';
import {outputsPrefix, parseOutputObject} from '../../shared/domain/names.ts';
import type {Run} from '../../shared/domain/records/run.ts';
import type {RunResult, Stats} from '../../shared/domain/run/result.ts';
import type {Objects} from '../../shared/ports/ports.ts';
import type {Cloud} from '../cloud/cloud.ts';
import {unknownRun} from '../cloud/fleet.ts';
import type {Answers} from '../json/index.ts';
import {bytesText, dollarText, listText, numberText} from '../text/format.ts';
import {usdPerMillionTokens} from './rates.ts';
import {readResult, streamsOf} from './run-state.ts';

/** Relative difference of two statistics that another machine or order of sums may make. */
export const TOLERANCE = 1e-3;

export type Side = {run: Run; result: RunResult | null; shards: Map<string, string>};
type Pair = Comparison['spec'][number];
/** `same`: the same samples, tokens and statistics. `statistics`: those beyond the tolerance, the largest difference first. */
export type Comparison = Answers['run compare'];

export async function readSide(cloud: Cloud, name: string): Promise<Side> {
  const run = await runRecords.get(cloud.store, name);
  if (!run) throw await unknownRun(cloud.store, name);
  const result = run.status === 'completed' ? await readResult(cloud.objects, name) : null;
  return {run, result, shards: await shardsOf(cloud.objects, name)};
}

/** Checksum of each shard, by stream and number. */
async function shardsOf(objects: Objects, run: string): Promise<Map<string, string>> {
  const shards = new Map<string, string>();
  for (const {name, crc32c} of await objects.list(outputsPrefix(run))) {
    const shard = parseOutputObject(name);
    if (shard?.run === run) shards.set(`${shard.stream}/${shard.shard}`, crc32c);
  }
  return shards;
}

export function compareSides(a: Side, b: Side): Comparison {
  const [in_a, in_b] = [a.result?.stats ?? {}, b.result?.stats ?? {}];
  const statistics = differentStatistics(in_a, in_b);
  const totals = totalsOf(a, b);
  const counts = totals.filter(({name}) => SAME_IN_BOTH.has(name));
  const isSame = statistics.length === 0 && counts.every(pair => pair.a === pair.b);
  const notes = [...notesOn(a, in_b), ...notesOn(b, in_a)];
  return {
    ...{a: a.run.run, b: b.run.run, same: isSame && notes.length === 0},
    ...{spec: differentKeys(a, b), totals, statistics, shards: compareShards(a.shards, b.shards), notes},
  };
}

/** Differences beside the values that both runs have. `other`: statistics of the other run. */
function notesOn({run, result}: Side, other: Record<string, Stats>): string[] {
  const {run: name, status} = run;
  const only = onlyIn(name, result?.stats ?? {}, other);
  if (status !== 'completed') return [...only, `run ${name} is ${status}: only what is stored is compared`];
  return result === null ? [...only, `run ${name} has no result in its manifest`] : only;
}

function onlyIn(run: string, own: Record<string, Stats>, other: Record<string, Stats>): string[] {
  const names = Object.keys(own).filter(tensor => !(tensor in other));
  if (names.length === 0 || Object.keys(other).length === 0) return [];
  return [`only run ${run} stores ${listText(names, MOST_NAMES)}`];
}

const MOST_NAMES = 6;

/** Totals that depend on the samples alone, and not on machines or prices. */
const SAME_IN_BOTH = new Set(['samples', 'rejected', 'tokens', 'rows']);

function totalsOf({run: a, result: in_a}: Side, {run: b, result: in_b}: Side): Pair[] {
  return [
    {name: 'status', a: a.status, b: b.status},
    {name: 'streams', a: streamsOf(a), b: streamsOf(b)},
    {name: 'samples', a: a.total_samples_processed, b: b.total_samples_processed},
    {name: 'rejected', a: a.rejected_samples, b: b.rejected_samples},
    {name: 'tokens', a: a.total_tokens, b: b.total_tokens},
    ...(in_a && in_b ? [{name: 'rows', a: in_a.rows, b: in_b.rows}] : []),
    {name: 'shards', a: a.total_shards, b: b.total_shards},
    {name: 'bytes', a: a.total_bytes, b: b.total_bytes},
    {name: 'cost_usd', a: a.cost_usd, b: b.cost_usd},
    {name: 'usd_per_million_tokens', a: usdPerMillionTokens(a), b: usdPerMillionTokens(b)},
    {name: 'model_commit', a: in_a?.model?.revision ?? null, b: in_b?.model?.revision ?? null},
    {name: 'weights_sha256', a: in_a?.model?.weights_sha256 ?? null, b: in_b?.model?.weights_sha256 ?? null},
  ];
}

function differentKeys({run: a}: Side, {run: b}: Side): Pair[] {
  const differences = differencesOf(a.spec ?? {}, b.spec ?? {});
  return differences.map(({key, wanted, stored}) => ({name: key, a: wanted ?? null, b: stored ?? null}));
}

function differentStatistics(a: Record<string, Stats>, b: Record<string, Stats>): Comparison['statistics'] {
  const both = Object.keys(a).filter(tensor => tensor in b);
  const found = both.flatMap(tensor =>
    (['mean', 'norm', 'max_abs', 'non_finite', 'mean_square', 'int8_error'] as const).map(key => {
      const [of_a, of_b] = [a[tensor]?.[key] ?? null, b[tensor]?.[key] ?? null];
      return {
        name: `${tensor} ${key}`,
        a: of_a,
        b: of_b,
        relative: relativeDifference(of_a, of_b, a[tensor]?.norm),
      };
    }),
  );
  return found
    .filter(({relative}) => relative > TOLERANCE)
    .sort((one, other) => other.relative - one.relative);
}

/** Of a mean near zero, the difference is compared with the norm of the rows. */
function relativeDifference(a: number | null, b: number | null, norm = 0): number {
  if (a === null || b === null) return a === b ? 0 : Number.POSITIVE_INFINITY;
  const scale = Math.max(Math.abs(a), Math.abs(b), norm);
  return scale === 0 ? 0 : Math.abs(a - b) / scale;
}

function compareShards(a: Map<string, string>, b: Map<string, string>): Comparison['shards'] {
  const both = [...a.keys()].filter(key => b.has(key));
  const same_bytes = both.filter(key => a.get(key) === b.get(key)).length;
  return {
    same_bytes,
    other_bytes: both.length - same_bytes,
    only_a: a.size - both.length,
    only_b: b.size - both.length,
  };
}

export function shownWhole(name: string, value: unknown): string {
  if (value === null || value === undefined) return '-';
  if (typeof value !== 'number') return typeof value === 'string' ? value : JSON.stringify(value);
  if (name === 'bytes') return bytesText(value);
  if (name.includes('usd')) return dollarText(value);
  return Number.isInteger(value) ? numberText(value) : String(Number(value.toPrecision(6)));
}

export type Difference = {key: string; wanted: unknown; stored: unknown};

/** Keys with other values in the two specs: of both, or of the named keys alone. */
export function differencesOf(wanted: object, stored: object, only?: readonly string[]): Difference[] {
  const [of_wanted, of_stored] = [wanted, stored] as [Record<string, unknown>, Record<string, unknown>];
  const keys = only ?? [...new Set([...Object.keys(of_wanted), ...Object.keys(of_stored)])];
  return keys
    .map(key => ({key, wanted: of_wanted[key], stored: of_stored[key]}))
    .filter(({wanted, stored}) => canonicalJson(wanted) !== canonicalJson(stored));
}
