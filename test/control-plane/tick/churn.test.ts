/** The churn of a zone, from the requests and the ends of its TPUs. */
import assert from 'node:assert/strict';
import {churnText, readChurn} from '../../../cli/pools/churn.ts';
import {zoneOf} from '../../world/scenes/fleet.ts';
import {aWorldWithAStream} from '../../world/scenes/one-worker.ts';
import {A0, ZONE} from '../../world/scenes/places.ts';

describe('The churn of a zone', () => {
  it('counts requests, refusals, nodes, lives, preemptions and dollars', async () => {
    const world = aWorldWithAStream(40);
    world.tpus.zone(ZONE).overQuota = true;
    await world.minutes(4);
    world.tpus.openZones();
    await world.until('work', () => world.agents.get(A0)?.state === 'working', 9, 1);
    world.tpus.node(A0).state = 'PREEMPTED';
    await world.agent(A0).preempted();
    await world.untilAsleep();
    const [found, ...others] = await readChurn(world.store, world.now);
    assert.ok(found && others.length === 0);
    const {zone, accelerator, tries, refusals, given, lives, preemptions, usd, mean_wait_s, mean_life_s} =
      found;
    assert.deepEqual([zone, accelerator, given, lives, preemptions], [ZONE, 'v5litepod-1', 2, 2, 1]);
    assert.ok(refusals >= 2 && tries === refusals + 2, `${tries} tries, ${refusals} refusals`);
    assert.ok(usd > 0 && Number(mean_wait_s) > 0 && Number(mean_life_s) > 60);
    assert.match(churnText(found), /refused; 2 TPUs came after .* 1 of 2 were preempted/);
    const run = await world.run('my-run');
    assert.ok(Math.abs(usd - Number(run?.spent_usd)) < 1e-9, 'the dollars of the lives are those of the run');
  });

  it('is forgotten after a week', async () => {
    const world = aWorldWithAStream(2);
    await world.untilAsleep();
    assert.equal((await zoneOf(world))?.churn.length, 1);
    assert.deepEqual(await readChurn(world.store, world.now + 8 * 86_400_000), []);
  });
});
