/** Another run beside the one that a test is about. */
import assert from 'node:assert/strict';
import type {World} from './control-plane-harness.ts';
import {someLines} from './shard-plan.ts';

/** In the same world, a run of another person ends well. */
export async function assertOthersGoOn(world: World): Promise<void> {
  world.drop('other', 0, someLines(5, 'other'));
  await world.untilAsleep();
  await world.assertStoredOnce('other', '000', someLines(5, 'other'));
  assert.equal((await world.run('other'))?.status, 'completed');
}

export async function rejections(world: World): Promise<string> {
  return (await world.timeline('rejected')).join('\n');
}
