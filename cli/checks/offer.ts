/** Checks that each zone offers the type of TPU and its runtime version, or the machine type and the image of an instance. */

import type {GoogleApi} from '../../client/google/api.ts';
import {imagePath, machineTypeOf, type Provider} from '../../shared/domain/records/providers.ts';
import {isForbidden, isNotFound} from '../../shared/google/errors.ts';
import type {Finding} from './findings.ts';

type Offer = {zones: readonly string[]; accelerator: string; runtime_version: string; provider: Provider};
type Lack = {zone: string; lacks: string};

/** Addresses that exist where a zone has the offer, each with the part of the offer that it stands for. */
function addressesOf(
  project: string,
  zone: string,
  {accelerator, runtime_version, provider}: Offer,
): [part: string, address: string][] {
  if (provider === 'compute-engine') {
    const at = 'compute.googleapis.com/compute/v1/';
    const machine = machineTypeOf(accelerator) ?? accelerator;
    return [
      [accelerator, `${at}projects/${project}/zones/${zone}/machineTypes/${machine}`],
      [runtime_version, `${at}${imagePath(runtime_version)}`],
    ];
  }
  const at = `tpu.googleapis.com/v2/projects/${project}/locations/${zone}`;
  return [
    [accelerator, `${at}/acceleratorTypes/${accelerator}`],
    [runtime_version, `${at}/runtimeVersions/${runtime_version}`],
  ];
}

/** Zones without the type or without the runtime version. Throws for an API that does not answer. */
export async function lacksOf(api: GoogleApi, project: string, offer: Offer): Promise<Lack[]> {
  const lacks: Lack[] = [];
  for (const zone of offer.zones)
    for (const [part, address] of addressesOf(project, zone, offer))
      await api.call('GET', address).catch((error: unknown) => {
        if (!isNotFound(error) && !isForbidden(error)) throw error;
        lacks.push({zone, lacks: part});
      });
  return lacks;
}

export async function checkOffer(api: GoogleApi, project: string, offer: Offer): Promise<Finding[]> {
  try {
    const lacks = await lacksOf(api, project, offer);
    return lacks.map(({zone, lacks}) => ({
      problem: `${zone} has no ${lacks}: take another zone, or ask for TPU quota there`,
    }));
  } catch (error) {
    return [{unchecked: `the offer of ${offer.zones.join(', ')}. ${(error as Error).message}`}];
  }
}
