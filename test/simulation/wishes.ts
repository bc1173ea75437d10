/** In some worlds operators keep TPUs without work for the next job, rebuild runs, or prefer one of them. */
import {streamId, streamObject} from '../../shared/domain/names.ts';
import type {Document} from '../../shared/ports/ports.ts';
import {someLines} from '../world/shard-plan.ts';
import type {Context} from './context.ts';
import type {Delivery} from './delivery.ts';

const MOST_MESSAGES = 3;
const MOST_PAUSES = 8;
const MOST_BUDGETS = 6;
const RUSH = 6;
const MOST_CANCELS = 6;
/** Bytes of an object for each byte of its content: a stream costs some cents to move. */
const HEAVY = 1_000_000;

export function planWishes(context: Context, delivery: Delivery): void {
  planKeeping(context, delivery);
  planRebuilds(context, delivery);
  planPriorities(context, delivery);
  planRunBudgets(context, delivery);
  planForbiddenZone(context);
  planRush(context, delivery);
}

function planKeeping(context: Context, delivery: Delivery): void {
  const chance = context.drawsOf('keeping');
  if (!chance) return;
  for (let count = chance.integer(1, MOST_MESSAGES); count > 0; count--) {
    const minutes = chance.pick([0, 5, 15, 40]);
    const message: Document = {action: 'keep', minutes, workers: chance.integer(1, 2)};
    context.after(chance.between(1, 25) * 60_000, () => context.isCalm || delivery.command(message));
  }
  delivery.command({action: 'correct', month: '2020-01', usd: 0});
}

/** In worlds with tiny pages a run has more of them: streams whose events are lost. Operators rebuild runs there. */
function planRebuilds(context: Context, delivery: Delivery): void {
  const chance = context.drawsOf('tiny pages');
  for (let stream = 3; chance && stream < 6; stream++) {
    const text = someLines(chance.integer(1, 3), `0/${stream} unnoticed`);
    const drop = () => context.drop(streamObject('run-0', streamId(stream)), text, false);
    context.after(chance.between(2, 40) * 60_000, drop);
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
function planPriorities(context: Context, delivery: Delivery): void {
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

/** In some worlds each run has a small budget, and its traffic costs as much as its TPUs. */
function planRunBudgets(context: Context, delivery: Delivery): void {
  const chance = context.drawsOf('run budgets');
  if (!chance) return;
  context.objects.weight = HEAVY;
  for (let count = MOST_BUDGETS; count > 0; count--) {
    const run = chance.pick(['run-0', 'run-1']);
    const message = {action: 'configure', run, budget_usd: chance.between(0.03, 0.25)};
    context.after(chance.between(2, 16) * 60_000, () => context.isCalm || delivery.command(message));
  }
}

/** In some worlds a permission is missing in a zone for an hour or two, and no person resumes the pool. */
function planForbiddenZone(context: Context): void {
  const chance = context.drawsOf('forbidden zone');
  const zone = chance?.pick([...context.tpus.zones.values()]);
  if (!chance || !zone) return;
  const forbid = (isForbidden: boolean) => Object.assign(zone, {isForbidden});
  const from_ms = chance.between(0, 20) * 60_000;
  context.after(from_ms, () => forbid(true));
  context.after(from_ms + chance.between(40, 100) * 60_000, () => forbid(false));
}

/** Returns a look at each commit. In some worlds people pause or resume a pool in the moment in which it requests a TPU. */
export function planHastyPauses(
  context: Context,
  delivery: Delivery,
): (before: Document | undefined, after: Document) => void {
  const chance = context.drawsOf('hasty pauses');
  let left = MOST_PAUSES;
  return (before, after) => {
    const isRequested = after.phase === 'creating' && before?.phase !== 'creating';
    if (!chance || !isRequested || context.isCalm || left === 0 || chance.happens(0.3)) return;
    left -= 1;
    const pool = String(after.pool);
    const isResume = chance.happens(0.5);
    delivery.command({action: isResume ? 'resume' : 'pause', pool});
    const resume = () => context.isCalm || delivery.command({action: 'resume', pool});
    if (!isResume) context.after(chance.between(1, 5) * 60_000, resume);
  };
}

/** In some worlds people cancel streams in the hands of workers and revive them, and change the source of the pool twice. */
export function planCollisions(
  context: Context,
  delivery: Delivery,
): (before: Document | undefined, after: Document) => void {
  const chance = context.drawsOf('collisions');
  const later = (ms: number, message: Document) =>
    context.after(ms, () => context.isCalm || delivery.command(message));
  for (let count = chance?.integer(2, 4) ?? 0; chance && count > 0; count--) {
    const ms = chance.between(2, 25) * 60_000;
    const [one, other] = ['d', 'e'].map(digit => ({source: {bundle: digit.repeat(64)}}));
    later(ms, {action: 'update', ...one, environment: {setup_script: 'true'}});
    later(ms + chance.between(0, 2000), {action: 'update', ...other});
  }
  let left = MOST_CANCELS;
  return (before, after) => {
    const [run = '', stream] = String(after.work ?? '').split('/');
    if (!chance || !stream || after.work === before?.work || left === 0 || chance.happens(0.6)) return;
    left -= 1;
    const ms = chance.between(0.1, 1.5) * 60_000;
    later(ms, {action: 'cancel', run, stream});
    later(ms + chance.between(0, 90_000), {action: 'retry', run, stream});
  };
}

/** In worlds with slow ticks the pool of the deployment wants further TPUs at each tick. */
function planRush(context: Context, delivery: Delivery): void {
  const chance = context.drawsOf('slow ticks');
  if (!chance) return;
  context.after(60_000, () => delivery.command({action: 'scale', workers_per_zone: RUSH}));
  for (let stream = 10; stream < 10 + RUSH; stream++)
    context.after(chance.between(2, 20) * 60_000, () =>
      context.drop(streamObject('run-0', streamId(stream)), someLines(1, `0/${stream} in the rush`)),
    );
}
