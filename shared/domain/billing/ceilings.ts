/** Ceilings of the deployment, which no message and no document can raise. */

import {MOST_NAME_CHARS, workerName} from '../names.ts';
import type {Pool} from '../records/pool.ts';

export type Ceilings = {
  max_workers: number;
  /** Dollars in a UTC month; null is no limit. */
  max_budget_usd: number | null;
  allowed_zones: readonly string[] | null;
  /** `hub`, `hub:ORG/`, `gs://BUCKET/PREFIX/`, `folder`; an entry that ends in `/` is a prefix. */
  model_sources: readonly string[];
  has_internet?: boolean;
};

/** Why the pool is larger than the deployment allows, or undefined. `elsewhere`: slots of the other pools. */
export function poolProblem(
  {zones, workers_per_zone}: Pick<Pool, 'zones' | 'workers_per_zone'>,
  {max_workers, allowed_zones}: Ceilings,
  elsewhere = 0,
): string | undefined {
  const forbidden = zones.filter(zone => allowed_zones && !allowed_zones.includes(zone));
  if (forbidden.length > 0)
    return `this deployment allows the zones ${allowed_zones?.join(', ')} (GLEANER_ALLOWED_ZONES), not ${forbidden.join(', ')}`;
  const workers = zones.length * workers_per_zone;
  const others = elsewhere > 0 ? `, other pools have ${elsewhere}` : '';
  if (workers + elsewhere > max_workers)
    return `${workers_per_zone} workers in each of ${zones.length} zones are ${workers}${others}, and this deployment allows ${max_workers} (GLEANER_MAX_WORKERS): deploy with a larger \`max_workers\``;
  return undefined;
}

/** The pool without the slots that no plan may use; `wantedSlots` counts the others. */
export function clipPool(pool: Pool, {max_workers, allowed_zones}: Ceilings): Pool {
  const isAllowed = (zone: string) => !allowed_zones || allowed_zones.includes(zone);
  if (pool.zones.every(isAllowed) && pool.workers_per_zone <= max_workers) return pool;
  return {
    ...pool,
    zones: pool.zones.filter(isAllowed),
    workers_per_zone: Math.min(pool.workers_per_zone, max_workers),
  };
}

const HUB_ID = /^[A-Za-z0-9][\w.-]*(\/[\w.-]+)?$/;

/** The files of all layers of a reduction, as `gleaner models mirror --path` takes them. `path`: a file, or the folder of an SAE. */
export function globOf(path = ''): string {
  const below = path.replace('{layer}', '*').replace(/\/$/, '');
  return below.endsWith('.safetensors') ? below : below ? `${below}/**` : '*';
}

type Spec = Readonly<Record<string, unknown>>;

const entriesOf = ({features = [], project = []}: Spec) =>
  [features, project].flat() as {weights: string; path?: string}[];

/** The model of a spec, and the weights of its reductions. */
export const weightsOf = (spec: Spec) => [String(spec.model), ...entriesOf(spec).map(({weights}) => weights)];

/** Why this deployment does not allow the model of a spec, or the weights of a reduction. */
export function sourcesProblem(spec: Spec, ceilings: Ceilings) {
  const problems = entriesOf(spec).map(({weights, path = ''}) => modelProblem(weights, ceilings, path));
  return modelProblem(String(spec.model), ceilings) ?? problems.find(each => each !== undefined);
}

/** `path`: that of a reduction, whose weights `model` is. */
export function modelProblem(model: string, {model_sources, has_internet}: Ceilings, path?: string) {
  const key = path === undefined ? 'model' : 'weights';
  const files = path === undefined ? '' : ` --path '${globOf(path).replaceAll("'", "'\\''")}'`;
  if (has_internet === false && kindOf(model) === 'hub')
    return `${key} "${model}" is on the hub, which the TPUs of this deployment cannot reach (GLEANER_INTERNET): copy it with \`gleaner models mirror ${model}${files}\`, and set \`${key}\` to its address in the bucket`;
  if (model_sources.some(source => isFrom(source, model))) return undefined;
  return `${key} "${model}" is not from a source that this deployment allows: ${model_sources.join(', ')} (GLEANER_MODEL_SOURCES)`;
}

/** A name is what the worker takes it for: an address in Cloud Storage, an id on the hub, or else a folder. */
function kindOf(model: string): 'gs://' | 'hub' | 'folder' {
  return model.startsWith('gs://') ? 'gs://' : HUB_ID.test(model) ? 'hub' : 'folder';
}

function isFrom(source: string, model: string): boolean {
  const kind = kindOf(model);
  if (source === kind) return true;
  const isSameKind = kind === 'hub' ? source.startsWith('hub:') : source.startsWith(kind);
  if (!isSameKind || kind === 'folder') return false;
  const [allowed, name] = [source.replace(/^hub:/, ''), model.replace(/\/+$/, '')];
  return allowed.endsWith('/') ? `${name}/`.startsWith(allowed) : name === allowed;
}

export function nodeNameProblem(of: Pick<Pool, 'pool' | 'zones' | 'workers_per_zone'>): string | undefined {
  const {pool, zones, workers_per_zone} = of;
  const names = zones.map(zone => workerName({pool, zone, slot: Math.max(0, workers_per_zone - 1)}));
  const long = names.find(name => name.length > MOST_NAME_CHARS);
  return (
    long &&
    `the node ${long} has a name of more than ${MOST_NAME_CHARS} characters: use a shorter name for the pool`
  );
}
