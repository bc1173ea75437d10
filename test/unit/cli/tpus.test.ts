import assert from 'node:assert/strict';
import {ceilingOf, ceilingText, deletionLines, namedTpus} from '../../../cli/tpus/changes.ts';
import {tpuTable} from '../../../cli/tpus/list.ts';
import type {Cloud} from '../../../client/cloud/cloud.ts';
import {tpuStatus} from '../../../client/explanations/tpu-status.ts';
import {attemptsOf, totalsOf, totalsText, tpuRow, whyNone} from '../../../client/views/tpus.ts';
import {nearNames} from '../../../shared/contracts/near-names.ts';
import {constraint} from '../../../shared/domain/records/constraint.ts';
import type {Pool} from '../../../shared/domain/records/pool.ts';
import type {Run} from '../../../shared/domain/records/run.ts';
import {aConfig, aRun, at, aWorker, T0} from '../../world/builders.ts';
import {aStore} from '../../world/scenes/put-documents.ts';

const POOL = aConfig().pool;
const A = 'tpu-us-central1-a-0';
const B = 'tpu-us-central1-a-1';
const C = 'tpu-us-east5-b-0';
const working = aWorker({
  phase: 'working',
  work: 'my-run/007',
  ready_at: at(0),
  usd_per_hour: 1.25,
  costs_at: at(0),
});

describe('The status word of a TPU', () => {
  for (const {given, word} of [
    {given: {phase: 'creating'}, word: 'STARTING'},
    {given: {phase: 'booting'}, word: 'STARTING'},
    {given: {phase: 'idle'}, word: 'READY'},
    {given: {phase: 'working'}, word: 'WORKING'},
    {given: {phase: 'draining'}, word: 'DRAINING'},
    {given: {phase: 'deleting'}, word: 'DELETING'},
    {given: {phase: 'deleting', last_death: 'it was preempted'}, word: 'PREEMPTED'},
    {given: {phase: 'deleting', provider_state: 'PREEMPTED'}, word: 'PREEMPTED'},
    {given: {phase: 'deleting', last_death: 'it vanished from Cloud TPU'}, word: 'MISSING'},
    {given: {phase: 'deleting', last_death: 'it has said nothing for 300 s'}, word: 'MISSING'},
    {given: {phase: 'deleting', provider_state: 'PREEMPTED', held: true}, word: 'DELETING'},
    {given: {phase: 'gone'}, word: 'GONE'},
    {given: {phase: 'gone', held: true}, word: 'HELD'},
  ] as const)
    it(`the status word of a TPU is ${word} for ${JSON.stringify(given)}`, () =>
      assert.equal(tpuStatus(aWorker(given)), word));
});

describe('A list of TPUs', () => {
  const rows = [
    working,
    aWorker({name: B, phase: 'creating', usd_per_hour: 1.25}),
    aWorker({name: C, phase: 'gone', held: true, usd_per_hour: 1.25, last_death: 'delete was asked for'}),
  ].map(worker => tpuRow(worker, [POOL], T0 + 3_600_000));

  it('a list of TPUs shows name, status, work, age and price of each', () => {
    assert.deepEqual(
      tpuTable(rows, T0 + 3_600_000).map(({text}) => text),
      [
        'TPU                  STATUS    WORKS ON     SINCE    $/H  PHASE     ZONE           ACCELERATOR  REASON',
        `${A}  WORKING   my-run/007  60 min  $1.25  working   us-central1-a  v5litepod-1`,
        `${B}  STARTING  -           60 min      -  creating  us-central1-a  v5litepod-1  ${B} is on its way (since 03:04): it is being created`,
        `${C}     HELD      -           60 min      -  gone      us-east5-b     v5litepod-1  a person deleted ${C}`,
      ],
    );
  });

  it('a list of TPUs adds up the dollars that it shows, to the last digit', () => {
    assert.equal(totalsText(totalsOf(rows)), '2 TPUs, 1 at work, $1.25 an hour');
    const preempted = aWorker({
      ...working,
      name: B,
      phase: 'deleting',
      provider_state: 'PREEMPTED',
      work: null,
    });
    const lost = aWorker({name: C, phase: 'deleting', last_death: 'it was preempted', usd_per_hour: 0.24493});
    const all = [working, preempted, lost].map(worker =>
      tpuRow({...worker, usd_per_hour: 0.24493}, [POOL], T0),
    );
    const shown = tpuTable(all, T0)
      .slice(1)
      .flatMap(({text}) => /\$(\S+)/.exec(text)?.[1] ?? []);
    assert.deepEqual(shown.map(Number), [0.24493, 0.24493], 'the lost TPU was never READY');
    assert.equal(totalsText(totalsOf(all)), '3 TPUs, 1 at work, $0.48986 an hour');
  });

  it('a list of TPUs says where a price is unknown', () => {
    const unknown = tpuRow({...working, usd_per_hour: null}, [], T0);
    assert.equal(
      totalsText(totalsOf([unknown])),
      '1 TPU, 1 at work, $0.00 an hour, and the price of 1 TPU is unknown',
    );
  });

  it('a list of TPUs shows the error of a refused TPU while its zone refuses TPUs, and no healed error', () => {
    const refused = aWorker({phase: 'gone', refused: true, last_error: 'no more capacity'});
    const waits = {...constraint('zone', refused.zone, 'no more capacity'), since_at: at(0)};
    const shown = [POOL, {...POOL, zones_wait: {[refused.zone]: waits}}].map(pool =>
      tpuRow(refused, [pool], T0),
    );
    assert.deepEqual(
      shown.map(({reason, last_error}) => [reason, last_error]),
      [
        [null, null],
        ['us-central1-a gives no TPU now (since 03:04): no more capacity', 'no more capacity'],
      ],
    );
  });

  it('a list of TPUs says for what runs and jobs wait where no TPU is there', async () => {
    const textsOf = async (run: Partial<Run>, pool: Partial<Pool> = {}) => {
      const store = await aStore({'runs/my-run': aRun(run), 'pools/tpu': {...POOL, ...pool}});
      return (await whyNone(store)).map(({text}) => text);
    };
    const waits = {...constraint('quota', 'us-central1-a', 'exhausted'), since_at: at(0)};
    assert.deepEqual(await textsOf({streams_pending: 3, waits}, {jobs_wait: waits}), [
      'no TPU: run my-run waits: the quota in us-central1-a is used up (since 03:04): exhausted',
      'no TPU: jobs of pool tpu wait: the quota in us-central1-a is used up (since 03:04): exhausted',
    ]);
    assert.deepEqual(await textsOf({streams_pending: 3}), ['no TPU: the next tick creates some']);
    assert.deepEqual(await textsOf({status: 'failed', streams_pending: 3, waits}), [
      'no TPU: TPUs are created when there is work',
    ]);
    assert.deepEqual(await textsOf({}), ['no TPU: TPUs are created when there is work']);
  });

  it('a list of TPUs has the cost of this incarnation until now', () =>
    assert.equal(rows[0]?.cost_usd, 1.25));

  it('a list of TPUs replaces control characters of an error', () => {
    const hostile = tpuRow({...working, last_error: 'a\u001b[31m\u202eb'}, [], T0);
    assert.doesNotMatch(tpuTable([hostile], T0)[1]?.text ?? '', /\p{Cc}|\p{Cf}/u);
  });
});

describe('The TPUs that a command names', () => {
  const fleet = {
    pools: [POOL],
    names: ['tpu'],
    workers: [working, aWorker({name: B, phase: 'gone'}), aWorker({name: C, phase: 'idle'})],
  };
  const names = (...args: [string[], {zone?: string; all?: boolean}]) =>
    namedTpus(fleet, ...args).map(({name}) => name);

  it('the TPUs that a command names are those of the names, of the zone, or all that are not gone', () => {
    assert.deepEqual(names([A, B], {}), [A, B]);
    assert.deepEqual(names([], {zone: 'us-east5-b'}), [C]);
    assert.deepEqual(names([], {all: true}), [A, C]);
  });

  it('the TPUs that a command names are chosen in one way', () => {
    assert.throws(() => names([], {}), /^UsageError: Give names of TPUs/);
    assert.throws(() => names([A], {all: true}), /^UsageError: Give names of TPUs/);
  });

  it('the TPUs that a command names are near misses for an unknown name', () =>
    assert.throws(
      () => names([A, 'tpu-us-east5-b-1'], {}),
      /"tpu-us-east5-b-1"; did you mean "tpu-us-east5-b-0"/,
    ));

  it('the TPUs that a command names are listed before a delete with dollars and work', () => {
    const rows = [working].map(worker => tpuRow(worker, [POOL], T0));
    assert.deepEqual(deletionLines(rows), [
      '1 TPU will be deleted, which saves $1.25 an hour:',
      `  ${A}  WORKING  my-run/007 goes back to the queue`,
      'Stored shards stay. Work that is not stored is done again.',
      'The slot stays empty until `gleaner tpus recreate NAME`.',
    ]);
  });
});

describe('The question before a delete', () => {
  it('the question before a delete names twenty TPUs and counts the rest', () => {
    const rows = Array.from({length: 21}, (_, slot) =>
      tpuRow(aWorker({name: `tpu-us-east5-b-${slot}`, phase: 'idle'}), [POOL], T0),
    );
    const lines = deletionLines(rows);
    assert.deepEqual(lines.slice(20, 22), ['  tpu-us-east5-b-19  READY', '  and 1 further TPU']);
    assert.equal(lines.at(-1), 'The slots stay empty until `gleaner tpus recreate NAME`.');
  });
});

describe('Names near a typed name', () => {
  for (const [given, known, near] of [
    ['my-rum', ['my-run', 'other'], ['my-run']],
    ['MY-RUN', ['my-run'], ['my-run']],
    ['zzz', ['my-run'], []],
    ['a', ['b', 'c', 'd', 'e'], ['b', 'c', 'd']],
  ] as const)
    it(`Names near a typed name of "${given}" are ${JSON.stringify(near)}`, () =>
      assert.deepEqual(nearNames(given, known), near));
});

describe('The ceiling of a pool', () => {
  it('the ceiling of a pool is its slots, and the price of an hour of all of them', async () => {
    const store = await aStore({'prices/chips': {v5litepod: {usd: 2, spot_usd: 1}}});
    const pool = {...POOL, zones: ['us-central1-a', 'us-east5-b'], workers_per_zone: 3};
    const ceiling = await ceilingOf({store} as Cloud, pool);
    assert.deepEqual(ceiling, {pool: 'tpu', most_tpus: 6, most_usd_per_hour: 6, unknown_zones: []});
    assert.match(ceilingText(ceiling), /^At most 6 TPUs, for \$6\.00 an hour\. TPUs are created when/);
    await store.close();
  });
});

describe('The attempts of a TPU', () => {
  const attempt = {
    ...{worker: A, incarnation: 1, cause: 'it was preempted', cause_kind: 'taken', work: 'my-run/007'},
    ...{ready_at: at(0), ended_at: at(60), expire_at: at(90), costs: {}, cost_usd: 0.5},
    last_phase: 'working',
  };

  it('the attempts of a TPU are the newest first, with how sure the cause is; an invalid document is left out', async () => {
    const path = (id: string) => `workers/${A}/attempts/${id}`;
    const store = await aStore({
      [path('000001')]: attempt,
      [path('000002')]: {...attempt, incarnation: 2, cause_kind: 'silent', work: 7, log: 'gs://logs/2.log'},
      [path('000003')]: {...attempt, incarnation: 3, cost_usd: 'much'},
    });
    const found = await attemptsOf(store, A);
    assert.deepEqual(
      found.map(({incarnation, evidence, work, log}) => [incarnation, evidence, work, log]),
      [
        [2, 'likely: the agent stopped reporting', null, 'gs://logs/2.log'],
        [1, 'certain: Cloud TPU reported it', 'my-run/007', null],
      ],
    );
    await store.close();
  });
});
