/**
 * Schemas of the kinds that `terraform/` uses. After a change of a provider's version or of the kinds, with the real provider:
 * `terraform -chdir=terraform providers schema -json | npx node cli/terraform/schemas.ts > schemas.json`.
 */
import {readdirSync, readFileSync} from 'node:fs';
import {text} from 'node:stream/consumers';
import {fileURLToPath} from 'node:url';

export type Flag = 'required' | 'optional' | 'computed' | 'sensitive' | 'write_only';
export type Attribute = {type: unknown} & Partial<Record<Flag, boolean>>;
export type Nested = Block & {nesting: Nesting; min_items?: number; max_items?: number};
export type Nesting = 'single' | 'list' | 'set' | 'map' | 'group';
export type Block = {attributes?: Record<string, Attribute>; blocks?: Record<string, Nested>};
export type Kinds = Record<string, Block & {version?: number}>;
export type Provider = {
  provider: Block;
  resources?: Kinds;
  data_sources?: Kinds;
};

/** Providers by short address, such as `hashicorp/google`. */
export type Schemas = Record<string, Provider>;

const FLAGS: Flag[] = ['required', 'optional', 'computed', 'sensitive', 'write_only'];

export function readSchemas(): Schemas {
  return JSON.parse(readFileSync(new URL('schemas.json', import.meta.url), 'utf8')) as Schemas;
}

/** As `terraform providers schema -json` writes a block and a provider. */
type Described = {
  attributes?: Record<string, Attribute>;
  block_types?: Record<
    string,
    {nesting_mode: Nesting; block: Described; min_items?: number; max_items?: number}
  >;
};
type DescribedKinds = Record<string, {version?: number; block: Described}>;
type DescribedProvider = {
  provider?: {block: Described};
  resource_schemas?: DescribedKinds;
  data_source_schemas?: DescribedKinds;
};

/** Keeps the kinds that the configuration uses, without descriptions. */
export function trimSchemas(described: {provider_schemas: Record<string, DescribedProvider>}): Schemas {
  const configuration = readConfiguration();
  const used = (block: string) =>
    new Set([...configuration.matchAll(new RegExp(`^${block} "(\\w+)"`, 'gm'))].map(([, kind]) => kind));
  const trimmed = Object.entries(described.provider_schemas).map(([address, found]) => {
    const provider: Provider = {
      provider: trimBlock(found.provider?.block ?? {}),
      resources: trimKinds(found.resource_schemas, used('resource')),
      data_sources: trimKinds(found.data_source_schemas, used('data')),
    };
    return [address.split('/').slice(-2).join('/'), provider];
  });
  return Object.fromEntries(trimmed.toSorted());
}

function readConfiguration(): string {
  const folder = new URL('../../terraform/', import.meta.url);
  const files = readdirSync(folder).filter(name => name.endsWith('.tf'));
  return files.map(name => readFileSync(new URL(name, folder), 'utf8')).join('\n');
}

function trimKinds(kinds: DescribedKinds = {}, used: ReadonlySet<string | undefined>): Kinds {
  const kept = Object.entries(kinds).filter(([kind]) => used.has(kind));
  return Object.fromEntries(
    kept
      .toSorted()
      .map(([kind, {version, block}]) => [kind, {...(version ? {version} : {}), ...trimBlock(block)}]),
  );
}

function trimBlock({attributes = {}, block_types = {}}: Described): Block {
  const trimmed = Object.entries(attributes).map(([name, attribute]) => {
    const flags = FLAGS.filter(flag => attribute[flag]).map(flag => [flag, true]);
    return [name, {type: attribute.type, ...Object.fromEntries(flags)}];
  });
  const blocks = Object.entries(block_types).map(([name, {nesting_mode, block, min_items, max_items}]) => {
    const items = {...(min_items ? {min_items} : {}), ...(max_items ? {max_items} : {})};
    return [name, {nesting: nesting_mode, ...items, ...trimBlock(block)}];
  });
  return {
    ...(trimmed.length > 0 ? {attributes: Object.fromEntries(trimmed.toSorted())} : {}),
    ...(blocks.length > 0 ? {blocks: Object.fromEntries(blocks.toSorted())} : {}),
  };
}

/** One line for each kind, so that a change of a kind changes its line alone. */
export function textOf(schemas: Schemas): string {
  const lines = (entries: [string, unknown][], write: (value: unknown) => string): string =>
    `{\n${entries.map(([key, value]) => `${JSON.stringify(key)}:${write(value)}`).join(',\n')}\n}`;
  const provider = (value: unknown) =>
    lines(Object.entries(value as Provider), kinds =>
      Object.keys(kinds as object).length > 0 ? lines(Object.entries(kinds as object), JSON.stringify) : '{}',
    );
  return `${lines(Object.entries(schemas), provider)}\n`;
}

if (process.argv[1] === fileURLToPath(import.meta.url))
  process.stdout.write(textOf(trimSchemas(JSON.parse(await text(process.stdin)))));
