import {setTimeout as sleep} from 'node:timers/promises';

/** Time of a deployment, which a test steps. */
export type Clock = {now(): number; sleep(seconds: number, signal?: AbortSignal): Promise<void>};

export const CLOCK: Clock = {
  now: Date.now,
  sleep: (seconds, signal) => sleep(seconds * 1000, undefined, signal ? {signal} : {}),
};
