/** Documents as they are stored, each field with its meaning. */

import {RESERVED} from '../../shared/ports/document-limits.ts';
import type {Value} from '../../shared/ports/ports.ts';
import type {Cloud} from '../cloud/cloud.ts';
import {schemaAt} from '../json/stored-schemas.ts';
import {schemaOf, typeOf} from '../json/types.ts';

export type FieldView = {name: string; value: Value; type: string | null; meaning: string | null};
/** `below`: collections that a document of its kind may have. */
export type DocumentView = {path: string; fields: FieldView[] | null; below: string[]};
export type CollectionView = {path: string; ids: string[]; next: string | null};

const PAGE = 200;
/** Fields that a page never shows. */
const SECRET = new Set(['host_secrets']);

const BELOW: [kind: RegExp, collections: string[]][] = [
  [/^runs\/[^/]+$/, ['streams']],
  [/^runs\/[^/]+\/streams\/[^/]+$/, ['shards']],
  [/^workers\/[^/]+$/, ['attempts']],
  [/^execs\/[^/]+$/, ['hosts']],
];

export function collectionsOf({jobs}: Pick<Cloud, 'jobs'>): string[] {
  return [
    'runs',
    'workers',
    'pools',
    'zones',
    jobs,
    'execs',
    'events',
    'control',
    'notices',
    'tasks',
    'prices',
    'system',
  ];
}

/** True for the path of a document or a collection that this deployment may have. */
export function isKnownPath(cloud: Pick<Cloud, 'jobs'>, path: string): boolean {
  const parts = path.split('/');
  const isId = (part: string) =>
    !['', '.', '..'].includes(part) && part.length <= 200 && !RESERVED.test(part);
  if (!parts.every(isId)) return false;
  if (!collectionsOf(cloud).includes(parts[0] ?? '')) return false;
  const isBelow = (at: number) => belowOf(parts.slice(0, at).join('/')).includes(parts[at] ?? '');
  return parts.every((_, at) => at < 2 || at % 2 === 1 || isBelow(at));
}

function belowOf(path: string): string[] {
  return BELOW.find(([kind]) => kind.test(path))?.[1] ?? [];
}

export async function readDocument({store, jobs}: Cloud, path: string): Promise<DocumentView> {
  const data = await store.get(path);
  const below = belowOf(path).map(name => `${path}/${name}`);
  if (!data) return {path, fields: null, below};
  const schema = schemaAt(jobs !== 'jobs' && path.startsWith(`${jobs}/`) ? path.replace(jobs, 'jobs') : path);
  const known = schema ? (schemaOf(schema).properties ?? {}) : {};
  const order = [
    ...Object.keys(known).filter(name => name in data),
    ...Object.keys(data).filter(name => !(name in known)),
  ];
  const fields = order.map(name => {
    const property = known[name];
    const value = SECRET.has(name) ? 'not shown' : (data[name] ?? null);
    return {name, value, type: property ? typeOf(property) : null, meaning: property?.description ?? null};
  });
  return {path, fields, below};
}

/** A page of the ids of a collection, in their order. */
export async function readCollection({store}: Cloud, path: string, after?: string): Promise<CollectionView> {
  const found = await store.query(path, {...(after === undefined ? {} : {after}), limit: PAGE});
  const ids = found.map(({id}) => id);
  return {path, ids, next: ids.length < PAGE ? null : (ids.at(-1) ?? null)};
}
