/**
 * Does something at a service at one moment and answers at another. A caller of a fake decides when that is, and whether the call fails
 * before the effect or its answer is lost after it.
 */
export type Call = <T>(verb: string, effect: () => T) => Promise<T>;

export const callAtOnce: Call = async (_, effect) => effect();
