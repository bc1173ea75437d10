/**
 * Schemas of the kinds that `terraform/` uses. After a change of a provider's version or of the kinds, with the real provider:
 * `terraform -chdir=terraform providers schema -json | npx node test/terraform/trim-schemas.ts > cli/terraform/schemas.json`.
 */
import {readdirSync, readFileSync} from 'node:fs';
import {text} from 'node:stream/consumers';
import {fileURLToPath} from 'node:url';
import type {Kind, Schemas} from '../../cli/terraform/stand-in.ts';

/** Keeps the kinds that the configuration uses. */
export function trimSchemas({provider_schemas}: {provider_schemas: Schemas}): Schemas {
  const configuration = readConfiguration();
  const used = (kinds: Record<string, Kind> = {}, block: string) =>
    Object.fromEntries(
      Object.entries(kinds).filter(([kind]) => configuration.includes(`\n${block} "${kind}" `)),
    );
  const trimmed = Object.entries(provider_schemas).map(([address, provider]) => [
    address.split('/').slice(-2).join('/'),
    {
      provider: provider.provider,
      resource_schemas: used(provider.resource_schemas, 'resource'),
      data_source_schemas: used(provider.data_source_schemas, 'data'),
    },
  ]);
  return Object.fromEntries(trimmed);
}

function readConfiguration(): string {
  const folder = new URL('../../terraform/', import.meta.url);
  const files = readdirSync(folder).filter(name => name.endsWith('.tf'));
  return files.map(name => `\n${readFileSync(new URL(name, folder), 'utf8')}`).join('');
}

/** One line for each kind, without descriptions and flags that are not set. */
export function textOf(schemas: Schemas): string {
  const isProse = (key: string, value: unknown) => key.startsWith('description') && typeof value === 'string';
  const kept = JSON.stringify(schemas, (key, value) => (value && !isProse(key, value) ? value : undefined));
  return `${kept.replace(/"(?:hashicorp\/|provider":|google_\w+":)/g, '\n$&')}\n`;
}

if (process.argv[1] === fileURLToPath(import.meta.url))
  process.stdout.write(textOf(trimSchemas(JSON.parse(await text(process.stdin)))));
