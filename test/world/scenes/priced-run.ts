/** A run on one TPU slot with a known price. */
import {LIST_PRICES} from '../../../shared/domain/billing/list-prices.ts';
import {someLines} from '../shard-plan.ts';
import {World} from '../world.ts';

export const ONE_SLOT = {
  GLEANER_ZONES: 'us-central1-a',
  GLEANER_WORKERS_PER_ZONE: '1',
  GLEANER_ACCELERATOR: 'v6e-8',
};
export const SLOT = 'tpu-us-central1-a-0';
/** The list price of v6e-8 on spot. */
export const USD_PER_HOUR = 8 * (LIST_PRICES['v6e@us-central1']?.spot_usd ?? Number.NaN);
export const USD_PER_MINUTE = USD_PER_HOUR / 60;

/** A run with this run.json whose TPU is READY. */
export async function aPricedRun(run_json: object, set: Record<string, string> = {}): Promise<World> {
  const world = new World({...ONE_SLOT, ...set});
  world.objects.put('datasets/my-run/run.json', JSON.stringify(run_json));
  world.drop('my-run', 0, someLines(60));
  await world.until('work', async () => world.agents.size > 0, 9, 1);
  return world;
}
