/** Checks that each zone offers the type of TPU and its runtime version. */
import {isForbidden, isNotFound} from '../../shared/google/errors.ts';
import type {GoogleApi} from '../google/api.ts';
import type {Finding} from './findings.ts';

type Offer = {zones: readonly string[]; accelerator: string; runtime_version: string};
type Lack = {zone: string; lacks: string};

/** Zones without the type or without the runtime version. Throws for an API that does not answer. */
export async function lacksOf(
  api: GoogleApi,
  project: string,
  {zones, accelerator, runtime_version}: Offer,
): Promise<Lack[]> {
  const lacks: Lack[] = [];
  for (const zone of zones)
    for (const [kind, name] of [
      ['acceleratorTypes', accelerator],
      ['runtimeVersions', runtime_version],
    ] as const)
      await api
        .call('GET', `tpu.googleapis.com/v2/projects/${project}/locations/${zone}/${kind}/${name}`)
        .catch((error: unknown) => {
          if (!isNotFound(error) && !isForbidden(error)) throw error;
          lacks.push({zone, lacks: name});
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
