import {chipsOf} from '../billing/prices.ts';
import {hostsOfType, ONE_HOST} from './accelerators.ts';
import {INSTANCE_TYPES} from './providers.ts';

/** Why a run cannot have TPUs of this type, or undefined. A stream has one writer, so hosts of a slice would compute nothing for it. */
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
