/** Another run beside the run of a test. */
import assert from 'node:assert/strict';
import {someLines} from '../shard-plan.ts';
import type {World} from '../world.ts';

/** Runs and completes a run of another person in the same world. */
export async function assertOthersGoOn(world: World): Promise<void> {
  world.drop('other', 0, someLines(5, 'other'));
  await world.untilStoredOnce('other', '000', someLines(5, 'other'));
  assert.equal((await world.run('other'))?.status, 'completed');
}

export async function rejections(world: World): Promise<string> {
  return (await world.timeline('rejected')).join('\n');
}
