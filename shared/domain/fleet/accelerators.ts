import {chipsOf} from '../billing/prices.ts';
import {acceleratorOf, INSTANCE_TYPES, isImage, type Provider} from '../records/providers.ts';

const doubled = (from: number, to: number): number[] => (from > to ? [] : [from, ...doubled(2 * from, to)]);

/** Sizes of each generation, as the number in the type: the first one doubled up to the last. */
const SIZES: Readonly<Record<string, readonly number[]>> = {
  v2: [8, 32, 128, 256, 512],
  v3: [8, ...doubled(32, 2048)],
  v4: doubled(8, 4096),
  v5litepod: [1, ...doubled(4, 256)],
  v5p: doubled(8, 8192),
  v6e: [1, ...doubled(4, 256)],
};

export const ACCELERATORS = Object.entries(SIZES).flatMap(([generation, sizes]) =>
  sizes.map(size => `${generation}-${size}`),
);

/** Chips of each host in a slice of several hosts. */
export const HOST_CHIPS = 4;

/** Hosts of a node of this type: 1 for an unknown type. A host of v5e and v6e has up to 8 chips where it is the only one. */
export function hostsOfType(accelerator: string): number {
  const {generation, chips} = chipsOf(accelerator) ?? {generation: '', chips: 1};
  const isOne = ['v5litepod', 'v6e'].includes(generation) && chips <= 8;
  return isOne ? 1 : Math.max(1, Math.ceil(chips / HOST_CHIPS));
}

export const ONE_HOST = ACCELERATORS.filter(type => hostsOfType(type) === 1);

/** The types that the TPU compiler can compile for, by generation and size, as `ACCELERATORS` of preflight/accelerators.py. */
export const COMPILED = [
  ...['v5litepod-1', 'v5litepod-4', 'v5litepod-8', 'v5litepod-16', 'v6e-1', 'v6e-4', 'v6e-8', 'v6e-16'],
  ...['v5p-8', 'v5p-16', 'tpu7x-8', 'tpu7x-16'],
];

/** Hosts that a TPU may have by default: all of them write one document. */
export const MAX_HOSTS = 16;

export function acceleratorProblem(
  accelerator: string,
  provider: Provider = 'tpu-api',
  max_hosts = MAX_HOSTS,
): string | undefined {
  const hosts = hostsOfType(accelerator);
  const fitting = ACCELERATORS.filter(type => hostsOfType(type) <= max_hosts);
  const own = provider === 'tpu-api' ? fitting : INSTANCE_TYPES;
  if (own.includes(accelerator)) return undefined;
  const types = `use one of ${own.join(', ')}`;
  const named = acceleratorOf(accelerator);
  if (named) return `"${accelerator}" is the machine type of ${named}: name the accelerator ${named}`;
  if (INSTANCE_TYPES.includes(accelerator))
    return `the Cloud TPU API has no ${accelerator}: use provider "compute-engine"`;
  if (!ACCELERATORS.includes(accelerator)) return `there is no accelerator "${accelerator}": ${types}`;
  if (provider === 'compute-engine')
    return `Compute Engine has no instance with a ${accelerator}: ${types}, or provider "tpu-api"`;
  return `"${accelerator}" has ${hosts} hosts, and this deployment allows ${max_hosts} (max_hosts, GLEANER_MAX_HOSTS): ${types}`;
}

/** Why a run cannot use TPUs of this type, or undefined. A stream has one writer, so further hosts of a slice would have nothing to do. */
export function runAcceleratorProblem(accelerator: string): string | undefined {
  const hosts = hostsOfType(accelerator);
  if (hosts === 1) return undefined;
  const why = `a run uses TPUs of one host, and ${accelerator} has ${hosts} hosts for jobs`;
  const {generation, chips} = chipsOf(accelerator) ?? {generation: '', chips: 0};
  const sizes = [...ONE_HOST, ...INSTANCE_TYPES].flatMap(type => ({type, ...chipsOf(type)}));
  const ofGeneration = sizes.filter(each => each.generation === generation);
  const largest = ofGeneration.sort((a, b) => (b.chips ?? 0) - (a.chips ?? 0))[0];
  if (!largest?.chips) return why;
  return `${why}: use ${chips / largest.chips} × ${largest.type}, so that each host has a stream of its own`;
}

type Versions = Readonly<Record<string, readonly [string, ...string[]]>>;

/** Runtime versions of each generation, as Cloud TPU documents them. The first is the default. */
const RUNTIMES: Versions = {
  v2: ['tpu-ubuntu2204-base'],
  v3: ['tpu-ubuntu2204-base'],
  v4: ['tpu-ubuntu2204-base'],
  v5litepod: ['v2-alpha-tpuv5-lite'],
  v5p: ['v2-alpha-tpuv5'],
  v6e: ['v2-alpha-tpuv6e', 'v6e-ubuntu-2404'],
};

/** Families of Google's images with the drivers of each generation, for instances of Compute Engine. */
const IMAGES: Versions = {
  v5p: ['ubuntu-accel-2204-amd64-tpu-v5e-v5p-v6e'],
  v6e: ['ubuntu-accel-2204-amd64-tpu-v5e-v5p-v6e'],
  tpu7x: ['ubuntu-accel-2404-amd64-tpu-tpu7x'],
};

const versionsOf = (provider: Provider) => (provider === 'tpu-api' ? RUNTIMES : IMAGES);

export const RUNTIME_VERSIONS: readonly string[] = [...new Set(Object.values(RUNTIMES).flat())].sort();

export const IMAGE_FAMILIES: readonly string[] = [...new Set(Object.values(IMAGES).flat())].sort();

const generationOf = (accelerator: string) => accelerator.split('-', 1)[0] ?? '';

/** The usual runtime version of an accelerator, or image of its instance; empty for an unknown generation. */
export function runtimeOf(accelerator: string, provider: Provider = 'tpu-api'): string {
  return versionsOf(provider)[generationOf(accelerator)]?.[0] ?? '';
}

/**
 * Why nodes of this accelerator cannot have the runtime version, or undefined. Unknown generations are not checked. An instance may have any
 * image that a path names.
 */
export function runtimeProblem(accelerator: string, runtime_version: string, provider: Provider = 'tpu-api') {
  if (provider === 'compute-engine') {
    if (runtime_version.includes('/') && isImage(runtime_version)) return undefined;
    if (runtime_version.includes('/'))
      return `runtime_version "${runtime_version}" is not the path of an image: use projects/PROJECT/global/images/family/FAMILY`;
  }
  const known = versionsOf(provider)[generationOf(accelerator)];
  if (!known || known.includes(runtime_version)) return undefined;
  return `runtime_version "${runtime_version}" is not for ${accelerator}: leave it out, or use ${known.join(' or ')}`;
}

/** Middle part of quota ids, after `TPU`, for on-demand and for spot TPUs. */
const QUOTAS: Readonly<Record<string, readonly [on_demand: string, spot: string]>> = {
  v2: ['V2s', 'V2sPreemptible'],
  v3: ['V3s', 'V3sPreemptible'],
  v4: ['V4sPod', 'V4sPreemptiblePod'],
  v5litepod: ['V5sLitepod', 'V5sPreemptibleLitepod'],
  v5p: ['V5P', 'V5PPreemptible'],
  v6e: ['V6E', 'V6EPreemptible'],
};

/** Quotas of Compute Engine in each region. v6e has none of its own on demand, and shares that of its family. */
const INSTANCE_QUOTAS: Readonly<Record<string, readonly [on_demand: string, spot: string]>> = {
  v5p: ['TPU-V5P-per-project-region', 'PREEMPTIBLE-TPU-V5P-per-project-region'],
  v6e: ['TPUS-PER-TPU-FAMILY-per-project-region', 'PREEMPTIBLE-TPU-V6E-per-project-region'],
  tpu7x: ['TPUS-PER-TPU-FAMILY-per-project-region', 'TPUS-PER-TPU-FAMILY-per-project-region'],
};

/** Service that counts the TPUs of a provider. */
export const QUOTA_SERVICE: Readonly<Record<Provider, string>> = {
  'tpu-api': 'tpu.googleapis.com',
  'compute-engine': 'compute.googleapis.com',
};

/** Count of a node against its quotas: the number in its type, or the chips of an instance. */
export function quotaSizeOf(accelerator: string, provider: Provider = 'tpu-api'): number {
  const size = Number(accelerator.split('-')[1]);
  return provider === 'tpu-api' ? size : (chipsOf(accelerator)?.chips ?? size);
}

/** True for a quota of a region, false for a quota of a zone. */
export const isRegional = (quota: string) => /PerRegion|-region$/.test(quota);

/**
 * Ids of the quotas that bound nodes of an accelerator. `tpu.googleapis.com` has a quota for the zone and one for the region; both count the
 * number in the type. Its v5e types with one host use the quota of serving, larger slices another. `compute.googleapis.com` has one quota for
 * the region, which is independent: a project may have one service without the other. Flex-start TPUs count as spot.
 */
export function quotaIdsOf(accelerator: string, spot: boolean, provider: Provider = 'tpu-api'): string[] {
  const generation = generationOf(accelerator);
  const names = (provider === 'tpu-api' ? QUOTAS : INSTANCE_QUOTAS)[generation];
  const name = names?.[spot ? 1 : 0];
  if (!name) return [];
  if (provider === 'compute-engine') return [name];
  const serving = generation === 'v5litepod' && ONE_HOST.includes(accelerator) ? 'Serving' : '';
  const start = `TPU${name}${serving}PerProjectPer`;
  return [`${start}ZoneForTPUAPI`, `${start}RegionForTPUAPI`];
}
