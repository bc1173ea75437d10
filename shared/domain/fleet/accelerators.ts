import {chipsOf} from '../billing/prices.ts';

/** Types of TPUs with one host: a worker is one host. */
export const ONE_HOST = [
  ...['v2-8', 'v3-8', 'v4-8', 'v5litepod-1', 'v5litepod-4', 'v5litepod-8'],
  ...['v5p-8', 'v6e-1', 'v6e-4', 'v6e-8'],
];

/** The types that the TPU compiler can compile for, as `ACCELERATORS` of preflight/accelerators.py. */
export const COMPILED = ONE_HOST.filter(type => !/^v[234]-/.test(type));

/** Why a pool cannot have this accelerator, or undefined. */
export function acceleratorProblem(accelerator: string): string | undefined {
  if (ONE_HOST.includes(accelerator)) return undefined;
  const types = `use one of ${ONE_HOST.join(', ')}`;
  if (!chipsOf(accelerator)) return `there is no accelerator "${accelerator}": ${types}`;
  return `"${accelerator}" has several hosts, and a worker is one host: ${types}`;
}

/** Runtime versions of each generation, as Cloud TPU documents them. The first is the default. */
const RUNTIMES: Readonly<Record<string, readonly [string, ...string[]]>> = {
  v2: ['tpu-ubuntu2204-base'],
  v3: ['tpu-ubuntu2204-base'],
  v4: ['tpu-ubuntu2204-base'],
  v5litepod: ['v2-alpha-tpuv5-lite'],
  v5p: ['v2-alpha-tpuv5'],
  v6e: ['v2-alpha-tpuv6e', 'v6e-ubuntu-2404'],
};

/** Every known runtime version. */
export const RUNTIME_VERSIONS: readonly string[] = [...new Set(Object.values(RUNTIMES).flat())].sort();

const generationOf = (accelerator: string) => accelerator.split('-', 1)[0] ?? '';

/** The usual runtime version of an accelerator; empty for an unknown generation. */
export function runtimeOf(accelerator: string): string {
  return RUNTIMES[generationOf(accelerator)]?.[0] ?? '';
}

/** Why nodes of this accelerator cannot have the runtime version, or undefined. An unknown generation has no table. */
export function runtimeProblem(accelerator: string, runtime_version: string): string | undefined {
  const known = RUNTIMES[generationOf(accelerator)];
  if (!known || known.includes(runtime_version)) return undefined;
  return `runtime_version "${runtime_version}" is not for ${accelerator}: leave it out, or use ${known.join(' or ')}`;
}

/** Middle of the ids of quotas, behind `TPU`, of on-demand and of spot TPUs. */
const QUOTAS: Readonly<Record<string, readonly [on_demand: string, spot: string]>> = {
  v2: ['V2s', 'V2sPreemptible'],
  v3: ['V3s', 'V3sPreemptible'],
  v4: ['V4sPod', 'V4sPreemptiblePod'],
  v5litepod: ['V5sLitepod', 'V5sPreemptibleLitepod'],
  v5p: ['V5P', 'V5PPreemptible'],
  v6e: ['V6E', 'V6EPreemptible'],
};

/**
 * Ids of the quotas of `tpu.googleapis.com` that bound nodes of an accelerator: one of the zone and one of the region. Each counts the
 * number in the name of the type. Types of v5e with one host have the quota of serving, apart from larger slices.
 */
export function quotaIdsOf(accelerator: string, spot: boolean): string[] {
  const generation = generationOf(accelerator);
  const names = QUOTAS[generation];
  if (!names) return [];
  const serving = generation === 'v5litepod' && ONE_HOST.includes(accelerator) ? 'Serving' : '';
  const start = `TPU${names[spot ? 1 : 0]}${serving}PerProjectPer`;
  return [`${start}ZoneForTPUAPI`, `${start}RegionForTPUAPI`];
}
