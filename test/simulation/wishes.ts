/** In some worlds operators keep TPUs without work for the next job, rebuild runs, or prefer one of them. */
import {streamId, streamObject} from '../../shared/domain/names.ts';
import type {Document} from '../../shared/ports.ts';
import {Chance} from '../support/kernel.ts';
import {someLines} from '../support/shard-plan.ts';
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

/** In worlds with tiny pages a run has more of them: streams whose events are lost. Operators rebuild runs there. */
export function planRebuilds(context: Context, delivery: Delivery): void {
  const chance = context.drawsOf('tiny pages');
  for (let stream = 3; chance && stream < 6; stream++) {
    const text = someLines(chance.integer(1, 3), `0/${stream} unnoticed`);
    const drop = () => context.drop(streamObject('run-0', streamId(stream)), text, false);
    context.after(chance.between(2, 20) * 60_000, drop);
  }
  for (let count = chance?.integer(1, 3) ?? 0; chance && count > 0; count--) {
    const run = chance.pick([{run: 'run-0'}, {run: 'run-1'}, {}]);
    context.after(
      chance.between(8, 30) * 60_000,
      () => context.isCalm || delivery.command({action: 'rebuild', ...run}),
    );
  }
}

/** In some worlds operators prefer one of the runs. */
export function planPriorities(context: Context, delivery: Delivery): void {
  const chance = context.drawsOf('priorities');
  for (let count = chance?.integer(1, 3) ?? 0; chance && count > 0; count--) {
    const message = {
      action: 'configure',
      run: chance.pick(['run-0', 'run-1']),
      priority: chance.integer(-2, 2),
    };
    context.after(chance.between(0, 15) * 60_000, () => context.isCalm || delivery.command(message));
  }
}
