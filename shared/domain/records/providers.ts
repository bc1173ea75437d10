/** Providers of TPUs: the Cloud TPU API and Compute Engine, the only one with TPU7x. Each pool has one; plans are the same for both. */
import {z} from 'zod';
import {poolTerms} from './pool-settings.ts';

export const provider = z.enum(poolTerms.provider.words);
export type Provider = z.infer<typeof provider>;

/** Machine types of Compute Engine by accelerator. Each is one host with all chips of the accelerator. */
const MACHINE_TYPES: Readonly<Record<string, string>> = {
  'v6e-1': 'ct6e-standard-1t',
  'v6e-4': 'ct6e-standard-4t',
  'v6e-8': 'ct6e-standard-8t',
  'v5p-8': 'ct5p-hightpu-4t',
  'tpu7x-8': 'tpu7x-standard-4t',
};

export const INSTANCE_TYPES: readonly string[] = Object.keys(MACHINE_TYPES);

export const machineTypeOf = (accelerator: string): string | undefined => MACHINE_TYPES[accelerator];

export function acceleratorOf(machine_type: string): string | undefined {
  return INSTANCE_TYPES.find(accelerator => MACHINE_TYPES[accelerator] === machine_type);
}

/** Type of the boot disk: newer machines cannot use Persistent Disk. */
export function diskTypeOf(accelerator: string): string {
  return accelerator.startsWith('v5p-') ? 'pd-balanced' : 'hyperdisk-balanced';
}

/** Usual size of a boot disk. The images need 10 GB, and nodes of the Cloud TPU API have 100. */
export const DISK_GB = 100;

export const IMAGE_PROJECT = 'ubuntu-os-accelerator-images';

/** A family of Google's images, or the path of an image or a family. */
const IMAGE =
  /^([a-z]([a-z0-9-]{0,61}[a-z0-9])?|projects\/[a-z0-9.:-]{1,63}\/global\/images\/(family\/)?[a-z]([a-z0-9-]{0,61}[a-z0-9])?)$/;

export const isImage = (text: string) => IMAGE.test(text);

/** The path of an image. A plain name is a family of Google's images. */
export function imagePath(image: string): string {
  return image.includes('/') ? image : `projects/${IMAGE_PROJECT}/global/images/family/${image}`;
}

export type Terms = {provider: Provider; provisioning: string; spot: boolean; disk_gb: number | null};

/** Why the provider has no TPUs on these terms, or undefined. `providers`: those of the deployment. */
export function providerProblem(
  {provider, provisioning, spot, disk_gb}: Terms,
  providers: readonly Provider[],
): string | undefined {
  if (!providers.includes(provider))
    return `provider "${provider}" is not one of this deployment: ${providers.join(', ')} (GLEANER_PROVIDERS)`;
  if (provider === 'tpu-api') {
    if (disk_gb !== null) return `the Cloud TPU API chooses the boot disk: leave disk_gb out`;
    return provisioning === 'flex-start'
      ? 'provisioning "flex-start" needs provider "compute-engine"'
      : undefined;
  }
  if (provisioning === 'queued-resource' || provisioning === 'auto')
    return `Compute Engine has no queued resources: use provisioning "node" or "flex-start" instead of "${provisioning}"`;
  return provisioning === 'flex-start' && spot
    ? 'a flex-start TPU is not preempted, so it is no Spot VM: set spot to false'
    : undefined;
}
