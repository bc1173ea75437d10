/** In some worlds operators keep TPUs without work, for the next job. */
import type {Document} from '../../shared/ports.ts';
import {Chance} from '../support/kernel.ts';
import type {Context} from './context.ts';
import type {Delivery} from './delivery.ts';

const EVERY = 4;
const REMAINDER = 1;
const MOST_MESSAGES = 3;

/** Plans the messages with draws of their own, so that the other worlds stay as they are. */
export function planKeeping(context: Context, delivery: Delivery, seed: number): void {
  if (seed % EVERY !== REMAINDER || !context.hasPart('keeping')) return;
  const chance = new Chance(seed * 15_485_863 + 5);
  for (let count = chance.integer(1, MOST_MESSAGES); count > 0; count--) {
    const minutes = chance.pick([0, 5, 15, 40]);
    const message: Document = {action: 'keep', minutes, workers: chance.integer(1, 2)};
    context.after(chance.between(1, 25) * 60_000, () => context.isCalm || delivery.command(message));
  }
}
