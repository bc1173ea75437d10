/** The repeat of steps that Google has not finished: it makes agents, spreads roles and learns metrics within some minutes. */
import {setTimeout as sleep} from 'node:timers/promises';
import {CliError} from '../../client/text/errors.ts';
import {say} from '../../client/text/output.ts';
import {kindOf} from '../../shared/google/errors.ts';
import {StepFailed} from './terraform.ts';

/** Time of a deployment, which a test steps. */
export type Clock = {now(): number; sleep(seconds: number, signal?: AbortSignal): Promise<void>};

export const CLOCK: Clock = {
  now: Date.now,
  sleep: (seconds, signal) => sleep(seconds * 1000, undefined, signal ? {signal} : {}),
};

const WAITS_S = [30, 60, 120];
/** From the first failure. A new metric is known after ten minutes at most. */
const MOST_WAIT_S = 12 * 60;

/** Repeats `step` while its failure is one that passes. `attempt` counts from 0. */
export async function untilReady<T>(
  step: (attempt: number) => Promise<T>,
  clock: Clock,
  stop?: AbortSignal,
): Promise<T> {
  let end_ms: number | undefined;
  for (let attempt = 0; ; attempt++)
    try {
      return await step(attempt);
    } catch (error) {
      const kind = error instanceof StepFailed ? error.kind : kindOf(error);
      if (kind !== 'early') throw error;
      end_ms ??= clock.now() + MOST_WAIT_S * 1000;
      const wait_s = WAITS_S[Math.min(attempt, WAITS_S.length - 1)] ?? 0;
      const left_s = (end_ms - clock.now()) / 1000;
      if (wait_s > left_s) throw late(error as Error);
      const text = error instanceof StepFailed ? error.first : (error as Error).message;
      say(`Google has not finished an earlier step: ${text}`);
      say(`Repeating in ${wait_s} s, for ${Math.floor(left_s / 60)} minutes at most`);
      await clock.sleep(wait_s, stop);
    }
}

function late(error: Error): CliError {
  const text = `${error.message}; Google has not finished for ${MOST_WAIT_S / 60} minutes: run the command again later`;
  return new CliError(text, {cause: error});
}
