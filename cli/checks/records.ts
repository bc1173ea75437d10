/** Checks that the first records of each stream have the field of the run, and that the worker's code makes samples of them. */
import {existsSync} from 'node:fs';
import {join, resolve} from 'node:path';
import type {Connection} from '../../client/connection/connection.ts';
import {environmentFolder, LOCK} from '../../client/python/python.ts';
import {CliError} from '../../client/text/errors.ts';
import {counted, listText} from '../../client/text/format.ts';
import {quoted} from '../../client/text/output.ts';
import type {Sampled} from '../../client/views/assumptions.ts';
import {nearText} from '../../shared/contracts/near-names.ts';
import {spanField} from '../../shared/contracts/spec/selections.ts';
import type {RunSpec} from '../../shared/contracts/spec/spec.ts';
import {askWorker, HubSilent} from '../python/ask-worker.ts';
import type {StreamFile} from '../streams/folder.ts';
import {JsonError, jsonKind, jsonValue, membersOf} from '../streams/sources/json-text.ts';
import {
  BESIDE_MESSAGES,
  CHATS,
  KNOWN_FIELDS,
  knownFieldsOf,
  SYSTEM,
  TASK_FIELDS,
} from '../streams/sources/known-fields.ts';
import {firstLines} from '../streams/sources/lines.ts';
import type {Finding} from './findings.ts';

/** Streams whose first records are read, from all over the list, and records of each. */
const MOST_STREAMS = 200;
const MOST_RECORDS = 20;
/** Streams that the worker's code reads, and bytes of them together. */
const MOST_RENDERED = 8;
const RENDERED_BYTES = 256 * 1024;

type RecordSpec = Pick<RunSpec, 'record' | 'tokens' | 'mask'>;
type KeptSpec = RecordSpec & Pick<RunSpec, 'keep' | 'over_long'>;

/** `connection`: undefined where the hub of the model does not answer; then no record is made a sample. */
export async function checkRecords(
  streams: readonly StreamFile[],
  spec: RunSpec,
  connection: Connection | undefined,
): Promise<{findings: Finding[]; sampled?: Sampled}> {
  const first: string[] = [];
  for (const stream of spread(streams, MOST_STREAMS)) {
    const lines = await firstLines(stream.path, MOST_RECORDS);
    const problem = recordsProblem(lines, spec);
    if (problem !== undefined) return {findings: [{problem: `${stream.path}: ${problem}`}]};
    first.push(...lines);
  }
  if (streams.length === 0 || !connection) return {findings: keptFindings(first, spec)};
  const {findings, ...rest} = await checkSamples(spread(streams, MOST_RENDERED), spec, connection);
  return {findings: [...keptFindings(first, spec), ...findings], ...rest};
}

/** Refuses a kept field that no record has, and names the fields that the shards will not have. */
export function keptFindings(lines: readonly string[], spec: KeptSpec): Finding[] {
  const {keep, over_long} = spec;
  if (lines.length === 0 && keep.length > 0)
    return [{unchecked: `that the records have ${listText(keep)} of --keep: no record is on this machine`}];
  const records = lines.map(line => new Set(fieldsOf(line)));
  const fields = new Set(records.flatMap(record => [...record]));
  const absent = fields.size === 0 ? [] : keep.filter(name => !fields.has(name));
  if (absent.length > 0)
    return absent.map(name => ({
      problem: `none of the first records has the field "${name}", which --keep (keep of run.json) names${nearText(name, fields) || `; they have ${listText([...fields])}`}`,
    }));
  const unread = records.flatMap(record => [...record].filter(name => !isRead(name, record, spec)));
  const left = [...new Set(unread)].filter(name => !keep.includes(name));
  if (left.length === 0) return [];
  const toKeep = [...keep, ...left.filter(name => !name.includes(','))];
  const isFull = over_long === 'pack' || toKeep.length === keep.length;
  const advice = isFull
    ? ''
    : `; to copy them: run start --keep ${quoted(toKeep.join(','))}, or keep of run.json`;
  return [{note: `The shards will not have these fields: ${listText(left)}${advice}`}];
}

function fieldsOf(line: string): Iterable<string> {
  try {
    return membersOf(line).keys();
  } catch (error) {
    if (error instanceof JsonError) return [];
    throw error;
  }
}

/** True for a field that makes the sample, or that its spans need. */
function isRead(name: string, fields: ReadonlySet<string>, {record, tokens, mask}: RecordSpec): boolean {
  if ([spanField(tokens), spanField(mask), ...BESIDE_MESSAGES].includes(name)) return true;
  const {template} = record;
  if (template !== null)
    return /^\w+$/.test(name) ? template.split(/\W+/).includes(name) : template.includes(name);
  if (record.field !== null) return record.field === name;
  const [taken] = knownFieldsOf(fields);
  if (name === SYSTEM && CHATS.includes(taken ?? '')) return true;
  return taken === name || (taken === TASK_FIELDS.join(' and ') && TASK_FIELDS.includes(name));
}

/** Why no record becomes a sample; undefined if one of them may. A single bad record is rejected by the run and stops nothing. */
export function recordsProblem(lines: readonly string[], spec: RecordSpec): string | undefined {
  const problems = lines.map(line => recordProblem(line, spec));
  const [first] = problems;
  return problems.every(problem => problem !== undefined) ? first : undefined;
}

function recordProblem(line: string, {record, tokens, mask}: RecordSpec): string | undefined {
  const {field, template} = record;
  let members: ReadonlyMap<string, string>;
  try {
    if (jsonKind(jsonValue(line)) !== 'object') return 'its first record is not a JSON object';
    members = membersOf(line);
  } catch (error) {
    if (!(error instanceof JsonError)) throw error;
    return `its first record is not JSON: ${error.message}`;
  }
  const names = [...members.keys()];
  const has = `its first record has ${names.length === 0 ? 'no field' : `the fields ${listText(names, 10)}`}`;
  const absent = [spanField(tokens), spanField(mask)].find(name => name !== undefined && !members.has(name));
  if (absent !== undefined) return `${has}, and not ${absent}, whose spans --tokens or --mask ask for`;
  if (template !== null) return undefined;
  if (field !== null)
    return members.has(field)
      ? undefined
      : `${has}, and not ${field}: correct --field (record.field of run.json)`;
  if (knownFieldsOf(members).length > 0) return undefined;
  return `${has}, and none of ${[...KNOWN_FIELDS, TASK_FIELDS.join(' and ')].join(', ')}: give --field or --template`;
}

/** Makes samples of the first records by the worker's own code, where its Python environment is on this machine. */
async function checkSamples(
  streams: readonly StreamFile[],
  spec: RunSpec,
  connection: Connection,
): Promise<{findings: Finding[]; sampled?: Sampled}> {
  if (!existsSync(join(await environmentFolder(LOCK), 'bin', 'python'))) {
    const unchecked = 'the tokenizer, and the text of records: `gleaner estimate` prepares Python for it';
    return {findings: [{unchecked}]};
  }
  const files = streams.flatMap(({path}) => ['--file', resolve(path)]);
  try {
    const args = [...files, '--sample-bytes', String(RENDERED_BYTES)];
    const sampled = (await askWorker('gleaner_worker.estimate', spec, args, connection)) as Sampled;
    return {findings: samplesFindings(sampled), sampled};
  } catch (error) {
    if (!(error instanceof CliError)) throw error;
    const {message} = error;
    return {findings: [error instanceof HubSilent ? {unchecked: message} : {problem: message}]};
  }
}

/** Findings about the samples of the first records. */
export function samplesFindings({
  totals,
  reject_reasons,
}: Pick<Sampled, 'totals' | 'reject_reasons'>): Finding[] {
  const [samples, rejected] = [totals.samples.estimate, totals.rejected.estimate];
  const [common] = reject_reasons;
  if (samples > 0 || rejected === 0 || !common) return [];
  return [
    {problem: `all of the first ${counted(rejected, 'sample')} would be rejected, such as: ${common.reason}`},
  ];
}

/** At most so many items, from all over the list. */
function spread<T>(items: readonly T[], most: number): T[] {
  const step = Math.max(1, items.length / most);
  return Array.from(
    {length: Math.min(items.length, most)},
    (_, index) => items[Math.floor(index * step)] as T,
  );
}
