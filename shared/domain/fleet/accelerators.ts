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
