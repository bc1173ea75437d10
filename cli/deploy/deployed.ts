import {DEFAULT_DEPLOYMENT} from '../../shared/domain/deployment.ts';
import {runtimeOf} from '../../shared/domain/fleet/accelerators.ts';
import {type Provider, provider as providers} from '../../shared/domain/records/providers.ts';
import type {Settings} from './settings.ts';

export type Deployed = {
  name: string;
  region: string;
  /** Zones of the pools, and those that a message may name. */
  zones: string[];
  accelerator: string;
  runtime_version: string;
  provider: Provider;
  spot: boolean;
  workers_per_zone: number;
};

/** Values of the settings, with the defaults of `terraform/variables.tf`. */
export function deployedOf(settings: Settings): Deployed {
  const {
    name = DEFAULT_DEPLOYMENT,
    region,
    zones,
    allowed_zones,
    accelerator,
    runtime_version,
    spot,
  } = settings;
  const type = String(accelerator ?? 'v5litepod-1');
  const provider = providers.catch('tpu-api').parse(settings.tpu_provider);
  return {
    name,
    region: String(region),
    zones: (allowed_zones ?? zones ?? []) as string[],
    accelerator: type,
    runtime_version: String(runtime_version ?? runtimeOf(type, provider)),
    provider,
    spot: spot !== false,
    workers_per_zone: Number(settings.workers_per_zone ?? 1),
  };
}
