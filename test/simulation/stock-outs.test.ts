/** Stock-outs in worlds without another fault, with the settings of production. */
import assert from 'node:assert/strict';
import {timingDefaults} from '../../shared/contracts/settings/environment.ts';
import {streamId, streamObject} from '../../shared/domain/names.ts';
import type {Limiter} from '../../shared/domain/records/limiter.ts';
import {T0} from '../world/builders.ts';
import {someLines} from '../world/shard-plan.ts';
import {KINDS} from './conditions/faults.ts';
import {MINUTE_MS} from './conditions/times.ts';
import {startWorld} from './world.ts';

const BAD_ZONE = 'us-central1-a';
const RETRY_S = 60;
const TICK_S = 60;
/** Time after which an accepted request without a node keeps no work from another zone. */
const UNSHOWN_S = 90;
/** A wake, a tick and the messages of its creates. */
const WAKE_S = 30;
/** Requests of a burst that are on their way when the first refusal comes. */
const BURST = 8;

type Case = {name: string; slots: number; zones: number; kind: 'soldOut' | 'overQuota'; out_min: number};
const CASES: Case[] = [
  {name: '60 slots, sold out for 3 minutes', slots: 60, zones: 1, kind: 'soldOut', out_min: 3},
  {name: '8 slots, sold out for 25 minutes', slots: 8, zones: 1, kind: 'soldOut', out_min: 25},
  {name: '8 slots, over quota for 25 minutes', slots: 8, zones: 1, kind: 'overQuota', out_min: 25},
  {name: '8 slots in each of two zones, one sold out', slots: 8, zones: 2, kind: 'soldOut', out_min: 25},
];

type Figures = {
  /** Requests to the bad zone while it refuses nodes, and most requests in a minute after the first minute. */
  requests: number;
  most_in_a_minute: number;
  /** Seconds from the return of the capacity until the first node, and until three quarters of the nodes: the others wait for the answer to an earlier request. */
  first_s: number | undefined;
  all_s: number | undefined;
  /** Seconds from the first request to the bad zone until the other zone has a node for each stream. */
  elsewhere_s: number | undefined;
  /** Documents that the stock-out adds, and those that its requests after the first minute change. */
  added: string[];
  changed: string[];
  incarnations: number[];
};

async function measure({slots, zones, kind, out_min}: Case): Promise<Figures> {
  const without = new Set([...KINDS, 'long storm']);
  const world = await startWorld(0, {without, plan: {slots, lines: [], zones}, settings: timingDefaults()});
  const {clockwork, invariants, store, tpus} = world.context;
  let isOut = true;
  Object.defineProperty(tpus.zone(BAD_ZONE), kind, {get: () => isOut, set: () => {}});
  const [asked, made]: [number[], Map<string, number>] = [[], new Map()];
  tpus.onAskedFor = request => {
    invariants.nodes.onNodeRequest(request);
    invariants.waiting.onNodeRequest(request);
    if (request.zone === BAD_ZONE) asked.push(clockwork.now);
  };
  const [added, changed] = [new Set<string>(), new Set<string>()];
  const isLater = () => clockwork.now - (asked[0] ?? clockwork.now) > MINUTE_MS;
  store.onCommit = (path, before, after) => {
    invariants.onCommit(path, before, after);
    const isOfZone = path.includes(BAD_ZONE) || String(after?.text).includes(BAD_ZONE);
    if (isOut && isLater() && !before && isOfZone) added.add(`${path}: ${after?.text}`);
    if (isOut && isLater()) changed.add(path);
  };
  const note = () => {
    for (const {name} of tpus.nodes.values()) if (!made.has(name)) made.set(name, clockwork.now);
  };
  const until = async (at: number, isDone = () => false) => {
    while (clockwork.now < at && !isDone() && !world.isBroken()) {
      await clockwork.run(clockwork.now + 1000, world.isBroken);
      note();
    }
  };
  await until(T0 + 5000);
  for (let stream = 0; stream < slots; stream++)
    world.context.drop(streamObject('run-0', streamId(stream)), someLines(3000, `s${stream}`));
  await until(T0 + 10 * MINUTE_MS, () => asked.length > 0);
  const [first_asked] = asked;
  assert.ok(first_asked !== undefined, invariants.violation);
  await until(first_asked + out_min * MINUTE_MS);
  isOut = false;
  const [returned_at, requests] = [clockwork.now, asked.length];
  const inMinute = (at: number) => asked.filter(each => each >= at && each < at + MINUTE_MS - 1000).length;
  const most_in_a_minute = Math.max(0, ...asked.filter(at => at > first_asked + MINUTE_MS).map(inMinute));
  const limiter = store.peek(`zones/${BAD_ZONE}`)?.limiter as Limiter;
  assert.equal(limiter.state, 'probing');
  const incarnations = store.collection('workers').map(({data}) => Number(data.incarnation));
  await until(returned_at + 10 * MINUTE_MS, () => made.size === slots);
  assert.equal(invariants.violation, undefined);
  const since = (from: number, times: number[]) =>
    times.map(at => Math.round((at - from) / 1000)).sort((a, b) => a - b);
  const back = since(
    returned_at,
    [...made].flatMap(([name, at]) => (name.includes(BAD_ZONE) ? at : [])),
  );
  const elsewhere = since(
    first_asked,
    [...made].flatMap(([name, at]) => (name.includes(BAD_ZONE) ? [] : at)),
  );
  return {
    ...{requests, most_in_a_minute, first_s: back[0], all_s: back[Math.ceil(slots * 0.75) - 1]},
    ...{elsewhere_s: elsewhere.at(-1), added: [...added], changed: [...changed], incarnations},
  };
}

describe('a zone that refuses nodes', () => {
  for (const given of CASES)
    it(`gets a request a minute, and gives its nodes within retry_s and a tick: ${given.name}`, async () => {
      const figures = await measure(given);
      const {requests, most_in_a_minute, first_s, all_s, elsewhere_s, added, changed, incarnations} = figures;
      const told = JSON.stringify(figures);
      assert.ok(requests <= given.out_min + Math.min(given.slots, BURST) && most_in_a_minute <= 1, told);
      if (given.zones === 1) {
        assert.ok(first_s !== undefined && first_s <= RETRY_S + TICK_S, told);
        assert.ok(all_s !== undefined && all_s <= RETRY_S + TICK_S + WAKE_S, told);
        assert.deepEqual(new Set(incarnations), new Set([1]), 'a refusal costs no incarnation');
      } else assert.ok(elsewhere_s !== undefined && elsewhere_s <= UNSHOWN_S + TICK_S, told);
      if (given.kind !== 'overQuota') return;
      // A sold-out zone of the stand-in accepts some requests without an effect, and such a request is repeated for its slot.
      assert.deepEqual(added, []);
      const ofRequests = changed.filter(path => !path.startsWith('tasks/'));
      // One event counts the refusals. The pool and its first run show why they wait.
      assert.deepEqual([...new Set(ofRequests.map(path => path.replace(/^events.*/, 'events')))].sort(), [
        'events',
        'pools/tpu',
        'runs/run-0',
        'system/creates',
        `workers/tpu-${BAD_ZONE}-0`,
        `zones/${BAD_ZONE}`,
      ]);
    }).timeout(600_000);
});
