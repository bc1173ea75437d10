/** The type of a field in few words, from its JSON Schema. */
import {z} from 'zod';

type Schema = {
  type?: string | string[];
  format?: string;
  enum?: unknown[];
  const?: unknown;
  anyOf?: Schema[];
  oneOf?: Schema[];
  items?: Schema;
  properties?: Record<string, Schema>;
  default?: unknown;
  description?: string;
  required?: string[];
};

export function schemaOf(schema: z.ZodType, io: 'input' | 'output' = 'output'): Schema {
  return z.toJSONSchema(schema, {io, unrepresentable: 'any'}) as Schema;
}

export function typeOf(schema: Schema): string {
  const among = schema.anyOf ?? schema.oneOf;
  if (among) return [...new Set(among.map(typeOf))].join(' or ');
  if (schema.enum) return schema.enum.map(value => `\`${value}\``).join(', ');
  if (schema.const !== undefined) return `\`${schema.const}\``;
  if (schema.format === 'date-time') return 'instant';
  if (schema.type === 'array') return `list of ${typeOf(schema.items ?? {})}`;
  return [schema.type ?? 'any value'].flat().join(' or ');
}

export function row(...cells: string[]): string {
  return `| ${cells.map(cell => cell.replaceAll('|', '\\|').replaceAll('\n', ' ')).join(' | ')} |`;
}
