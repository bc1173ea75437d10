/** docs/run-spec.md: every key of `run.json`. */

import {row, typeOf} from '../../../client/json/types.ts';
import {runSpecJsonSchema} from './json-schemas.ts';

export type Property = Parameters<typeof typeOf>[0] & {
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
  maxItems?: number;
};

function limits({minimum, maximum, exclusiveMinimum, maxItems}: Property): string {
  const from = minimum ?? (exclusiveMinimum === undefined ? undefined : `over ${exclusiveMinimum}`);
  const range = [from, maximum].filter(
    value => value !== undefined && Math.abs(Number(value)) !== Number.MAX_SAFE_INTEGER,
  );
  const most = maxItems === undefined ? [] : [`at most ${maxItems}`];
  return [range.join(' to '), ...most].filter(Boolean).join(', ');
}

/** The limits of a value, also where the value may be null. */
function limitsOf(property: Property): string {
  return [property, ...((property.anyOf ?? []) as Property[])].map(limits).filter(Boolean).join(', ');
}

function rows(properties: Record<string, Property>, prefix = ''): string[] {
  return Object.entries(properties).flatMap(([key, property]) => {
    const given = property.default === undefined ? '' : `\`${JSON.stringify(property.default)}\``;
    const type = property.default === null ? typeOf(property).replace(' or null', '') : typeOf(property);
    const values = [type, limitsOf(property)].filter(Boolean).join(', ');
    const own = row(`\`${prefix}${key}\``, values, given, property.description ?? '');
    return [own, ...rows((property.properties ?? {}) as Record<string, Property>, `${prefix}${key}.`)];
  });
}

export function runSpecPage(page: string): string {
  const {properties} = runSpecJsonSchema() as {properties: Record<string, Property>};
  const {features, project, moments} = properties;
  const entries = {features: features?.items, project: project?.items, moments: moments?.anyOf?.[0]};
  const table = fieldTable('key of an entry', entries as Record<string, Property>);
  const isInside = (line: string) => !/^\| `\w+`/.test(line);
  return withTable(withTable(page, fieldTable('key', properties)), table.filter(isInside));
}

export function fieldTable(kind: string, properties: Record<string, Property>): string[] {
  return [`| ${kind} | values | default | meaning |`, '|---|---|---|---|', ...rows(properties)];
}

/** The text with these rows in place of those of its table with the same head. Rows of further fields are written by hand, and stay. */
export function withTable(text: string, table: readonly string[]): string {
  const lines = text.split('\n');
  const [head = ''] = table;
  const begin = lines.indexOf(head);
  if (begin < 0) throw new Error(`Failed to find the table ${head} below ${lines[0]}: write its head`);
  const isOwn = (line: string) => line.startsWith('|') && !line.includes('| further field |');
  const end = lines.findIndex((line, at) => at > begin && !isOwn(line));
  return [...lines.slice(0, begin), ...table, ...(end < 0 ? [] : lines.slice(end))].join('\n');
}
