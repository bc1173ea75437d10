import assert from 'node:assert/strict';
import {decideStreamGrant, type StreamGrantState} from '../../../../shared/domain/requests/grant-stream.ts';
import {aLeasedStream, aRun, aStream, at, aWorker, T0} from '../../../world/builders.ts';
import {HOLDER} from '../../../world/scenes/jobs.ts';

const SETTINGS = {
  bucket: 'bucket',
  bundle: 'deployed',
  region: null,
  ceilings: {max_workers: 8, max_budget_usd: null, allowed_zones: null, model_sources: ['hub']},
  keyOf: () => 'key',
};
const IDLE = aWorker({phase: 'idle', bundle: 'deployed', usd_per_hour: 1.2});
const AT_WORK = {...IDLE, phase: 'working' as const, work: 'my-run/007', epoch: 3, claimed_at: at(0)};
const PENDING: StreamGrantState = {
  stream: aStream({epoch: 2}),
  run: aRun(),
  worker: IDLE,
  hasOtherWork: false,
};
const OWN: StreamGrantState = {...PENDING, stream: aLeasedStream(), worker: AT_WORK};

const decide = (state: Partial<StreamGrantState>, given = PENDING) =>
  decideStreamGrant({...given, ...state}, HOLDER, SETTINGS, T0);

describe('the grant of a stream', () => {
  it('leases the stream in both documents, under the next epoch', () => {
    const {order, writes} = decide({});
    const {stream, worker, run, events} = writes ?? {};
    assert.deepEqual([stream?.status, stream?.lease], ['in_progress', {...HOLDER, epoch: 3}]);
    assert.deepEqual(
      [worker?.phase, worker?.work, worker?.epoch, worker?.claimed_at],
      ['working', 'my-run/007', 3, at(0)],
    );
    assert.deepEqual((order as {lease: object}).lease, {run: 'my-run', stream: '007', epoch: 3});
    assert.equal(run?.bundle, 'deployed', 'the run keeps the bundle of its first lease');
    assert.ok(!('expire_days' in (order as {work: object}).work), 'an earlier worker gets no new field');
    const expiring = decide({run: aRun({expire_days: 7})}).order as {work: {expire_days: number}};
    assert.equal(expiring.work.expire_days, 7);
    assert.equal(events?.[0]?.text, `${HOLDER.worker} works on my-run/007 from sample 0`);
  });

  const refusals: {name: string; given: Partial<StreamGrantState>}[] = [
    {name: 'a stream that another worker took', given: {stream: aLeasedStream({lease: null})}},
    {name: 'a stream of a deleted run', given: {run: undefined}},
    {name: 'a stream of a paused run', given: {run: aRun({status: 'paused'})}},
    {name: 'a stream of a run with a spent budget', given: {run: aRun({budget_usd: 1, cost_usd: 1})}},
    {
      name: 'a stream of a run whose budget traffic has spent',
      given: {run: aRun({budget_usd: 1, network_usd: 1})},
    },
    {name: 'to a worker of another incarnation', given: {worker: {...IDLE, incarnation: 3}}},
    {name: 'to a worker that goes', given: {worker: {...IDLE, phase: 'deleting'}}},
    {name: 'to a worker that holds other work', given: {hasOtherWork: true}},
  ];
  for (const {name, given} of refusals)
    it(`leases nothing and writes nothing: ${name}`, () => assert.deepEqual(decide(given), {}));

  it('pauses a run whose model the deployment does not allow', () => {
    const run = aRun({spec: {model: 'gs://elsewhere/model'}});
    const {order, writes} = decide({run});
    assert.deepEqual([order, writes?.run?.status, writes?.stream], [undefined, 'paused', undefined]);
    assert.match(writes?.events?.[0]?.text ?? '', /^Run my-run is paused: .*GLEANER_MODEL_SOURCES/);
  });

  it('leaves the bundle of the run where the worker has that of an earlier deployment', () => {
    const {writes} = decide({run: aRun({bundle: 'older'}), worker: {...IDLE, bundle: 'old'}});
    assert.equal(writes?.run, undefined);
    const kinds = writes?.events?.map(({kind}) => kind);
    assert.deepEqual(kinds, ['stream']);
  });

  it('counts in the run only where its budget carries few workers', () => {
    const grants = [null, 1000, 0.2].map(budget_usd => {
      const run = aRun({bundle: 'deployed', budget_usd, streams_pending: 5, updated_at: at(-9)});
      const {streams_in_progress, updated_at} = decide({run}).writes?.run ?? {};
      return [streams_in_progress, updated_at];
    });
    const isSeenByTicks = at(0);
    assert.deepEqual(grants, [
      [undefined, undefined],
      [undefined, undefined],
      [1, isSeenByTicks],
    ]);
  });

  const again: {name: string; given: Partial<StreamGrantState>; then: [string, number, string]}[] = [
    {name: 'after a lost answer', given: {}, then: ['in_progress', 0, 'my-run/007']},
    {
      name: 'after a restart',
      given: {worker: {...AT_WORK, claimed_at: null}},
      then: ['in_progress', 1, 'my-run/007'],
    },
    {
      name: 'also where the budget does not pay for another worker',
      given: {run: aRun({bundle: 'deployed', budget_usd: 0.1, streams_in_progress: 1})},
      then: ['in_progress', 0, 'my-run/007'],
    },
  ];
  for (const {name, given, then} of again)
    it(`leases the worker its own stream again ${name}`, () => {
      const {order, writes} = decide(given, OWN);
      assert.ok(order);
      assert.deepEqual([writes?.stream?.status, writes?.stream?.faults, writes?.worker?.work], then);
      assert.equal(writes?.stream?.epoch, 4);
    });

  it('fails the stream of the fifth restart, and frees the worker', () => {
    const stream = aLeasedStream({faults: 4});
    const {order, writes} = decide({stream, worker: {...AT_WORK, claimed_at: null}}, OWN);
    assert.deepEqual([order, writes?.stream?.status, writes?.worker?.work], [undefined, 'failed', null]);
    assert.equal(writes?.breaker?.after.machine_failed_streams, 1);
    assert.match(writes?.events?.[0]?.text ?? '', /failed after 5 machines in a row.*restarted/);
  });

  it('to a worker in another region needs allow_cross_region, and the budget for a read of the stream', () => {
    const far = {...SETTINGS, region: 'southamerica-west1'};
    const run = aRun({allow_cross_region: true, budget_usd: 1});
    const stream = aStream({epoch: 2, size_bytes: 1024 ** 3});
    const granted = (state: Partial<StreamGrantState>) =>
      decideStreamGrant({...PENDING, stream, ...state}, HOLDER, far, T0).writes?.stream?.network_usd.toFixed(
        2,
      );
    assert.deepEqual([granted({run: aRun()}), granted({run})], [undefined, '0.14']);
    assert.equal(granted({run: {...run, budget_usd: 0.14}}), undefined);
  });
});
