/** Number of the host of a node: every supported accelerator has one. */
export const FIRST_HOST = 0;

/** True if a node has a host of this number. */
export function hasHost(host: number): boolean {
  return host === FIRST_HOST;
}
