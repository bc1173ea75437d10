/** Notifications: written with the change that they tell, and sent until the receiver has accepted them. */
import assert from 'node:assert/strict';
import {Undelivered} from '../../../shared/contracts/errors.ts';
import {noticeRecords} from '../../../shared/control-plane/documents/notices.ts';
import {sendNotices} from '../../../shared/control-plane/tasks/send-notices.ts';
import {paths} from '../../../shared/domain/names.ts';
import {newNotice} from '../../../shared/domain/notices/notice.ts';
import {at, T0} from '../../world/builders.ts';
import {aFleet, waitInSilence} from '../../world/scenes/fleet.ts';
import {aPricedRun, ONE_SLOT, USD_PER_HOUR, USD_PER_MINUTE} from '../../world/scenes/priced-run.ts';
import {someLines} from '../../world/shard-plan.ts';
import {World} from '../../world/world.ts';

const NOTIFY = {GLEANER_NOTIFY: 'json'};

async function aRun(): Promise<World> {
  const world = new World({...ONE_SLOT, ...NOTIFY});
  world.drop('my-run', 0, someLines(4));
  await world.deliverAll();
  return world;
}

const outcomes = async (world: World) =>
  (await world.store.query('notices')).map(({path, data}) => noticeRecords.parse(path, data).outcome);

describe('notifications', () => {
  it('of a run that a person pauses and resumes, and of its end, are sent once', async () => {
    const world = await aRun();
    world.control({action: 'pause', run: 'my-run'});
    await world.minutes(3);
    await world.resume('my-run');
    await world.untilAsleep();
    assert.deepEqual(world.receiver.types, ['run.paused', 'run.completed']);
    const [paused, completed] = world.receiver.accepted;
    assert.equal(paused?.data.reason, 'a person paused it');
    const {timestamp, data, ...body} = JSON.parse(completed?.body ?? '{}');
    assert.match(timestamp, /^2026-01-02T/);
    assert.ok(data.spent_usd > 0);
    assert.deepEqual(
      {...body, ...data, spent_usd: 0},
      {
        ...{type: 'run.completed', id: completed?.id},
        ...{project: 'project', deployment: 'gleaner', pool: 'tpu', run: 'my-run', status: 'completed'},
        ...{text: 'Run my-run is completed', reason: null, spent_usd: 0, budget_usd: null},
        ...{streams: 1, streams_completed: 1, streams_failed: 0},
        ...{total_samples_processed: 4, rejected_samples: 0, total_tokens: 68},
      },
    );
  });

  it('of a run that is paused because its document was lost are sent too', async () => {
    const world = await aRun();
    await world.untilAsleep();
    await world.wipe();
    world.drop('my-run', 1, someLines(2));
    await world.deliverAll();
    await world.minutes(2);
    assert.deepEqual(world.receiver.types, ['run.completed', 'run.paused']);
  });

  it('of a run that fails has its reason', async () => {
    const world = await aRun();
    for (let minute = 0; minute < 40 && world.receiver.tries === 0; minute++) {
      for (const agent of world.agents.values())
        agent.failure = {kind: 'stream', reason: 'line 3 is too odd'};
      await world.minute(1);
    }
    const [{type, data} = {}] = world.receiver.accepted;
    assert.equal(type, 'run.failed');
    assert.match(String(data?.reason), /line 3 is too odd/);
  });

  it('of half and of nearly all of a budget are sent once, before that of its pause', async () => {
    const slow = {GLEANER_STALL_S: '86400', GLEANER_LOAD_S: '86400'};
    const world = await aPricedRun({budget_usd: 40 * USD_PER_MINUTE}, {...NOTIFY, ...slow});
    await world.minutes(60, 0);
    const told = world.receiver.accepted.map(({type, data}) => `${type} ${data.percent ?? ''}`);
    assert.deepEqual(told, ['run.budget 50', 'run.budget 90', 'run.paused ']);
  });

  it('of the budgets of the pool and of the month are sent once, and again in the next month', async () => {
    const slow = {GLEANER_STALL_S: '86400', GLEANER_LOAD_S: '86400'};
    const cap = {GLEANER_BUDGET_USD: String(USD_PER_HOUR), GLEANER_MAX_BUDGET_USD: String(USD_PER_HOUR)};
    const world = await aPricedRun({}, {...NOTIFY, ...slow, ...cap});
    await world.minutes(45, 0);
    const told = () => world.receiver.accepted.map(({data, type}) => `${type} ${data.month ?? data.pool}`);
    assert.deepEqual(told(), ['pool.budget tpu', 'month.budget 2026-01']);
    world.now += 31 * 86_400_000;
    world.redeploy({GLEANER_BUDGET_USD: String(10_000 * USD_PER_HOUR)});
    await world.tick();
    await world.deliverAll();
    assert.deepEqual(told().slice(2), ['month.budget 2026-02', 'run.paused tpu']);
  });

  it('of workers that a silence guard holds is sent once for the silence', async () => {
    const world = await aFleet(10, NOTIFY);
    await waitInSilence(world, 30);
    assert.deepEqual(world.receiver.types, ['zone.silent']);
    assert.match(String(world.receiver.accepted[0]?.data.text), /keeps \d silent workers for \$/);
  });

  it('of a state that flaps within ten minutes are folded into the last', async () => {
    const world = await aRun();
    for (let flap = 0; flap < 4; flap++) {
      world.control({action: 'pause', run: 'my-run'});
      await world.minute(0);
      await world.resume('my-run');
    }
    world.control({action: 'pause', run: 'my-run'});
    await world.minutes(5, 0);
    assert.deepEqual(world.receiver.types, ['run.paused']);
    await world.minutes(10, 0);
    assert.deepEqual(world.receiver.types, ['run.paused', 'run.paused']);
    assert.deepEqual((await outcomes(world)).sort(), ['merged', 'merged', 'merged', 'sent', 'sent']);
  });

  it('wait for a receiver that is away, with an id that stays', async () => {
    const world = await aRun();
    world.receiver.refusal = tries =>
      tries < 4 ? new Undelivered(false, 'example.com answered 503') : undefined;
    await world.untilAsleep();
    await world.minutes(1);
    const [notice] = await world.store.query('notices');
    assert.deepEqual([notice?.data.outcome, notice?.data.error], ['pending', 'example.com answered 503']);
    await world.minutes(30);
    assert.deepEqual([world.receiver.tries, world.receiver.types], [4, ['run.completed']]);
    assert.equal(world.receiver.accepted[0]?.id, notice?.id);
  });

  it('that a receiver refuses for a day are lost, and no other is', async () => {
    const world = await aRun();
    await world.untilAsleep();
    world.receiver.refusal = () => new Undelivered(true, 'example.com answered 404');
    world.drop('other-run', 0, someLines(1));
    await world.untilAsleep();
    for (let hour = 0; hour < 30; hour++) {
      world.now += 3_600_000;
      await world.minute();
    }
    const {tries} = world.receiver;
    world.receiver.refusal = () => undefined;
    world.now += 3_600_000;
    await world.minutes(3);
    assert.equal(world.receiver.tries, tries);
    assert.deepEqual(await outcomes(world), ['sent', 'failed']);
  });

  /** Stores notifications that are due, each of a key of its own. Their ids are in the order of `keys`. */
  async function aWorldWith(keys: readonly string[]): Promise<World> {
    const world = new World(NOTIFY);
    await world.store.transaction(async tx => {
      for (const [index, key] of keys.entries()) {
        const news = {type: 'run.failed', key, text: key, reason: null, facts: {run: key}} as const;
        // A notification that was tried before is due later than the others.
        const next_at = at(index === 0 ? 60 : 0);
        noticeRecords.set(tx, paths.notice(`id-${100 + index}`), {...newNotice(news, T0, 1000), next_at});
      }
    });
    world.now = T0 + 60_000;
    return world;
  }

  const send = ({deps, now}: World) => sendNotices(deps, now + 1000);
  const told = ({receiver}: World) => receiver.accepted.map(({data}) => data.run);

  it('are sent in the order of their changes, all of them', async () => {
    const keys = Array.from({length: 60}, (_, index) => `run-${index}`);
    const world = await aWorldWith(keys);
    while ('cursor' in (await send(world)));
    assert.deepEqual([world.receiver.tries, new Set(told(world)).size], [60, 60]);
    const few = await aWorldWith(['first', 'second']);
    await send(few);
    assert.deepEqual(told(few), ['first', 'second']);
  });

  it('behind one that the receiver refuses are sent, and none while it is away', async () => {
    for (const [refused, after] of [
      [true, ['second']],
      [false, []],
    ] as const) {
      const world = await aWorldWith(['first', 'second']);
      world.receiver.refusal = tries => (tries === 1 ? new Undelivered(refused, 'answered 404') : undefined);
      await send(world);
      assert.deepEqual(told(world), after);
    }
  });

  it('that fail raise the alert at the third failure in a row', async () => {
    const world = await aWorldWith(['first', 'second', 'third']);
    world.receiver.refusal = () => new Undelivered(true, 'answered 404');
    await send(world);
    const signals = world.logs.map(({signal}) => signal);
    assert.deepEqual(signals, [undefined, undefined, 'notices-failing']);
  });

  it('that another delivery has sent since they were read stay sent', async () => {
    const world = await aWorldWith(['first']);
    await send(world);
    const {store} = world.deps;
    const sent = await store.query('notices');
    const stale = sent.map(each => ({...each, data: {...each.data, next_at: at(60), outcome: 'pending'}}));
    await sendNotices({...world.deps, store: {...store, query: async () => stale}}, world.now + 1000);
    assert.deepEqual(await store.query('notices'), sent);
  });

  it('are not written without the setting', async () => {
    const world = new World(ONE_SLOT);
    world.drop('my-run', 0, someLines(4));
    await world.untilAsleep();
    assert.deepEqual([await outcomes(world), world.receiver.tries], [[], 0]);
  });
});
