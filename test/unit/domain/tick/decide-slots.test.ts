import assert from 'node:assert/strict';
import {NO_SPENDING} from '../../../../shared/domain/billing/monthly-spending.ts';
import {type Limiter, OPEN} from '../../../../shared/domain/records/limiter.ts';
import type {Run} from '../../../../shared/domain/records/run.ts';
import {MAX_FAULTS, type Stream} from '../../../../shared/domain/records/stream.ts';
import type {Worker} from '../../../../shared/domain/records/worker.ts';
import type {Zone} from '../../../../shared/domain/records/zone.ts';
import {decideSlots} from '../../../../shared/domain/tick/decide-slots.ts';
import type {SlotDocuments, SlotWrites} from '../../../../shared/domain/tick/slot-writes.ts';
import {changedSlots, type PlanInputs, slotOf} from '../../../../shared/domain/tick/slots.ts';
import {attemptOf, type WorkerAttempt} from '../../../../shared/domain/worker/attempt.ts';
import {sortNodes} from '../../../../shared/domain/worker/nodes.ts';
import {afterFailedBoot, afterPause, afterRefusal} from '../../../../shared/domain/zone/limiter.ts';
import {newZone} from '../../../../shared/domain/zone/placement.ts';
import {decideSilence} from '../../../../shared/domain/zone/silence-guard.ts';
import {aConfig, aLeasedStream, aRun, aTpu, at, aWorker, moment, T0} from '../../../world/builders.ts';
import {aRunningJob} from '../../../world/scenes/jobs.ts';

const ZONE = 'us-central1-a';
const NOW = T0 + 3_600_000;
const NAMES = [0, 1, 2].map(slot => `tpu-${ZONE}-${slot}`);
const CONFIG = aConfig({GLEANER_ZONES: ZONE});
const POOL = {...CONFIG.pool, limiter: OPEN};

const later = (seconds: number) => at((NOW - T0) / 1000 + seconds);
/** Limiters that failed boots stopped `s` seconds ago, and a refusal `s` seconds ago. */
const stopped = (s: number) =>
  Array.from({length: 5}).reduce<Limiter>(
    limiter => afterFailedBoot(limiter, CONFIG.bundle, 'no disk', NOW - s * 1000),
    OPEN,
  );
const probing = (s: number) =>
  afterRefusal(
    OPEN,
    {kind: 'no-capacity', reason: 'no', isLate: false, asked_at: null},
    CONFIG.placement,
    NOW - s * 1000,
  );
/** A worker at work on stream 007 of my-run, whose node is READY and costs a dollar an hour. */
const working = (changes: Partial<Worker> = {}) =>
  aWorker({
    ...{phase: 'working', ready_at: at(0), hello_at: at(0), heartbeat_at: later(-1), progress_at: later(-1)},
    ...{provider_state: 'READY', health: 'HEALTHY', usd_per_hour: 1, charged_to: 'my-run'},
    ...{work: 'my-run/007', epoch: 3, claimed_at: later(-1), costs_at: later(0), ...changes},
  });
/** A worker in a boot that takes two hours. */
const booting = (changes: Partial<Worker> = {}) =>
  aWorker({
    ...{phase: 'booting', phase_since_at: later(-7200), ready_at: at(0), provider_state: 'READY'},
    ...{born_at: at(0), health: 'HEALTHY', bundle: CONFIG.bundle, ...changes},
  });
/** A worker at work after `silent_s` without a heartbeat. */
const silent = (changes: Partial<Worker> = {}) =>
  working({heartbeat_at: later(-900), claimed_at: later(-900), ...changes});

type Given = {
  workers: readonly (Worker | undefined)[];
  wanted?: 'wanted' | 'unwanted' | 'dismissed';
  /** State of the nodes; null: there is no node. */
  node?: string | null;
  inputs?: Partial<PlanInputs>;
  zone?: Partial<Zone>;
  pool?: Partial<typeof POOL> | 'invalid';
  creates?: number;
  run?: Partial<Run>;
  stream?: Stream;
  streams?: ReadonlyMap<string, Stream>;
  suspected?: Stream;
  works?: SlotDocuments['works'];
  /** Fields of the stored records. */
  attempt?: Partial<WorkerAttempt> & {cause_kind?: string};
  stored?: false;
};

function decide({workers, wanted = 'wanted', node = 'READY', ...given}: Given): SlotWrites {
  const all = workers.map(
    (worker, index) => worker ?? aWorker({name: NAMES[index] ?? '', phase: 'gone', incarnation: 0}),
  );
  const seen = new Map(workers.flatMap(worker => (worker ? [[worker.name, worker] as const] : [])));
  const tpus = node === null ? [] : [...seen.keys()].map(name => aTpu({name, state: node}));
  const nodes = sortNodes(tpus, {deployment: 'gleaner', unreachable: [], at_ms: NOW});
  const inputs: PlanInputs = {
    ...{read_at_ms: NOW, planned_at_ms: NOW, pool: POOL, prices: {}, mostCreates: 9, spare: new Map()},
    tickBill: {usd: 0},
    servedTime: moment(NOW).servedTime,
    nodes: {...nodes, absent: new Set(node === null ? seen.keys() : [])},
    payers: new Map(all.map(({name}) => [name, 'my-run'])),
    ...{speakersByZone: new Map([[ZONE, 10]]), fullZones: new Set(), lostWorkers: new Set()},
    ...{shardsByRun: new Map([['my-run', 4]]), ...given.inputs},
  };
  const slots = all.map(worker => ({
    slot: slotOf(worker.name, wanted, seen)[0] ?? assert.fail(),
    worker,
  }));
  const run = aRun({...given.run});
  const documents: SlotDocuments = {
    shared: {
      zones: new Map([[ZONE, {...newZone(ZONE, T0), ...given.zone}]]),
      runs: new Map([[run.run, run]]),
      pool: given.pool === 'invalid' ? undefined : {...POOL, ...given.pool},
      spending: NO_SPENDING,
      creates: {creates: given.creates ?? 0, late_pools: [], next_at: null},
    },
    works:
      given.works ??
      new Map(
        all.map(({name}) => [
          name,
          {stream: given.streams?.get(name) ?? given.stream, job: undefined, suspectStream: given.suspected},
        ]),
      ),
    attempts: new Map(
      (given.stored === false ? [] : all).map(worker => [
        `workers/${worker.name}/attempts/${String(worker.incarnation).padStart(6, '0')}`,
        {...attemptOf(worker, {worker}, 'logs', T0), ...given.attempt},
      ]),
    ),
  };
  const changes = changedSlots(slots, inputs, CONFIG.limits, NOW);
  return decideSlots(changes, documents, inputs, CONFIG, NOW);
}

/** A silence guard that has replaced a worker: one canary is due. */
const {silence_guard: GUARD} = decideSilence(
  null,
  {worker: silent(), speakers: 9, isCrowded: false, isLost: false, silent_s: 1},
  moment(NOW),
);

const kinds = ({actions}: SlotWrites) => actions.map(({kind}) => kind);

describe('decideSlots', () => {
  describe('creates a node', () => {
    const empty: Given = {workers: [undefined], node: null};
    const cases: {name: string; given: Partial<Given>; creates: number}[] = [
      {name: 'in an open zone', given: {}, creates: 1},
      {
        name: 'of each slot, up to the creates of the plan',
        given: {workers: [undefined, undefined], creates: 8},
        creates: 1,
      },
      {name: 'of no slot without a payer', given: {inputs: {payers: new Map()}}, creates: 0},
      {name: 'of no slot after the creates of another tick', given: {creates: 9}, creates: 0},
      {name: 'from reads that took long', given: {inputs: {read_at_ms: NOW - 300_000}}, creates: 1},
      {name: 'not from reads that began 301 s ago', given: {inputs: {read_at_ms: NOW - 301_000}}, creates: 0},
      {name: 'not from a plan that is 61 s old', given: {inputs: {planned_at_ms: NOW - 61_000}}, creates: 0},
      {name: 'not in a zone that has just refused a node', given: {zone: {limiter: probing(60)}}, creates: 0},
      {
        name: 'of one slot in a zone that refused a node a minute ago',
        given: {workers: [undefined, undefined], creates: 7, zone: {limiter: probing(61)}},
        creates: 1,
      },
      {name: 'not in a zone whose creates are stopped', given: {zone: {limiter: stopped(60)}}, creates: 0},
      {name: 'as the try of an hour in a stopped zone', given: {zone: {limiter: stopped(3601)}}, creates: 1},
      {
        name: 'in a zone whose creates were stopped for an earlier bundle',
        given: {zone: {limiter: {...stopped(60), bundle: 'old'}}},
        creates: 1,
      },
      {name: 'not in a pool whose creates are stopped', given: {pool: {limiter: stopped(60)}}, creates: 0},
      {
        name: 'not in a pool that a person paused, and no canary either',
        given: {pool: {limiter: afterPause(OPEN, NOW)}, zone: {silence_guard: GUARD}},
        creates: 0,
      },
      {name: 'not in a pool whose document is invalid', given: {pool: 'invalid'}, creates: 0},
    ];
    for (const {name, given, creates} of cases)
      it(name, () => {
        const writes = decide({...empty, ...given});
        assert.deepEqual(
          kinds(writes),
          Array.from({length: creates}, () => 'create'),
        );
        assert.equal(writes.shared.creates?.creates, (given.creates ?? 0) + creates);
        const asked_at = writes.shared.zones.get(ZONE)?.limiter.asked_at;
        assert.equal(asked_at === later(0), creates > 0);
      });

    it('as a canary, also where creates are stopped or nodes live short lives', () => {
      const losses = Array.from({length: 9}, () => ({ended_at: later(-9), lived_s: 1}));
      for (const zone of [{limiter: stopped(60)}, {losses}]) {
        const writes = decide({...empty, zone: {silence_guard: GUARD, ...zone}});
        assert.deepEqual(
          writes.workers.map(({is_canary}) => is_canary),
          [true],
        );
        assert.equal(writes.shared.zones.get(ZONE)?.silence_guard?.canaries_due, 0);
      }
    });

    it('again after a refusal, as the try of a stopped zone or pool: it is born with this request', () => {
      const refused = aWorker({phase: 'gone', refused: true, born_at: at(0)});
      const born = (given: Partial<Given>) =>
        decide({...empty, workers: [refused], ...given}).workers[0]?.born_at;
      const limiter = stopped(3601);
      assert.deepEqual(
        [born({}), born({zone: {limiter}}), born({pool: {limiter}})],
        [at(0), later(0), later(0)],
      );
    });

    it('with the payer, the price and the bundle of its time', () => {
      const prices = {'v5litepod@us-central1': {usd: 1, spot_usd: 0.5}};
      const [worker] = decide({...empty, inputs: {prices}}).workers;
      assert.deepEqual(
        [worker?.charged_to, worker?.bundle, worker?.provisioning, Number(worker?.usd_per_hour) > 0],
        ['my-run', CONFIG.bundle, 'node', true],
      );
    });
  });

  it('repeats no create that its zone does not allow', () => {
    const creating = aWorker({phase: 'creating', asked_at: at(0), phase_since_at: later(-200)});
    const given: Given = {workers: [creating], node: null};
    assert.deepEqual(kinds(decide(given)), ['create']);
    assert.deepEqual(kinds(decide({...given, zone: {limiter: probing(1)}})), []);
    const old = decide({...given, inputs: {planned_at_ms: NOW - 61_000}});
    assert.deepEqual([kinds(old), old.lateSlots], [[], [creating.name]]);
    // The payer changes all the same.
    const payers = new Map([[creating.name, 'other']]);
    const first = {...creating, charged_to: 'my-run'};
    const {workers} = decide({
      workers: [first],
      node: null,
      inputs: {payers},
      zone: {limiter: probing(1)},
    });
    assert.deepEqual(
      workers.map(({charged_to, asked_at}) => [charged_to, asked_at]),
      [['other', at(0)]],
    );
  });

  describe('ends a worker', () => {
    const cases: {name: string; given: Given; faults: number; deaths: number; held: number}[] = [
      {
        name: 'that Cloud TPU took: its stream is free, and nothing is charged',
        given: {workers: [working()], node: 'PREEMPTED', stream: aLeasedStream()},
        ...{faults: 0, deaths: 0, held: 0},
      },
      {
        name: 'that is silent: its stream and its run are charged',
        given: {workers: [silent()], stream: aLeasedStream()},
        ...{faults: 1, deaths: 1, held: 0},
      },
    ];
    for (const {name, given, faults, deaths, held} of cases)
      it(name, () => {
        const writes = decide(given);
        assert.deepEqual(
          [...writes.streams.values()].map(({status, lease, faults}) => ({status, lease, faults})),
          [{status: 'pending', lease: null, faults}],
        );
        assert.equal(writes.shared.runs.get('my-run')?.machine_deaths, deaths);
        assert.deepEqual([kinds(writes), writes.heldWorkers.length], [['delete'], held]);
        assert.deepEqual(writes.freedStreams, [given.stream]);
        assert.equal(writes.attempts.size, 1);
      });

    it('of a zone that is taken as a whole, without a silence guard', () => {
      const writes = decide({workers: NAMES.map(name => working({name})), node: 'PREEMPTED'});
      const {silence_guard, losses} = writes.shared.zones.get(ZONE) ?? assert.fail();
      assert.deepEqual([kinds(writes).length, silence_guard, losses.length], [3, null, 3]);
    });

    for (const {name, worker} of [
      {name: 'at work', worker: {}},
      {
        name: 'in setup',
        worker: {phase: 'idle', activity: 'setup', work: null, epoch: null, claimed_at: null},
      },
    ] as const)
      it(`that is silent ${name} beyond the share of its zone: it is held, and charges nothing`, () => {
        const workers = NAMES.map(name => silent({name, ...worker}));
        const streams = new Map(NAMES.map((name, index) => [name, aLeasedStream({stream: `00${index}`})]));
        const writes = decide({workers, streams, inputs: {speakersByZone: new Map([[ZONE, 5]])}});
        assert.deepEqual([kinds(writes).length, writes.heldWorkers.length, writes.streams.size], [1, 2, 1]);
        assert.equal(writes.shared.zones.get(ZONE)?.silence_guard?.replaced, 1);
      });

    for (const {name, replaced_at, ends} of [
      {name: 'one of them gives it', replaced_at: later(-60), ends: 1},
      {name: 'none gives it while another tick empties one', replaced_at: later(0), ends: 0},
    ])
      it(`that are held while no slot of their zone can take a canary: ${name}`, () => {
        const {silence_guard} = decideSilence(
          null,
          {worker: silent(), speakers: 3, isCrowded: false, isLost: false, silent_s: 1},
          moment(NOW),
        );
        const workers = NAMES.map(name => silent({name}));
        const inputs = {speakersByZone: new Map([[ZONE, 3]]), fullZones: new Set([ZONE])};
        const writes = decide({
          workers,
          inputs,
          zone: {silence_guard: silence_guard && {...silence_guard, replaced_at}},
        });
        assert.deepEqual([kinds(writes).length, writes.heldWorkers.length], [ends, 3 - ends]);
        assert.equal(writes.shared.zones.get(ZONE)?.silence_guard?.canaries_due, 1);
      });

    it('whose run has lost ten machines: the run is paused', () => {
      const run = {machine_deaths: 9, machine_deaths_shards: 4, total_shards: 4};
      const writes = decide({workers: [silent()], stream: aLeasedStream(), run});
      assert.equal(writes.shared.runs.get('my-run')?.status, 'paused');
    });

    for (const {name, lost, held} of [
      {name: 'holds it: no share is known', lost: [], held: 1},
      {name: 'ends it after six hours', lost: NAMES, held: 0},
    ])
      it(`that is silent in a zone whose document is invalid ${name}`, () => {
        const limiter = {...OPEN, state: 'stopped', cause: 'person'} as const;
        const writes = decide({workers: [silent()], zone: {limiter}, inputs: {lostWorkers: new Set(lost)}});
        assert.deepEqual([kinds(writes).length, writes.heldWorkers.length], [1 - held, held]);
      });

    it('that is silent like another one, before a canary sent a heartbeat: the two count as one dead machine', () => {
      const workers = NAMES.slice(0, 2).map(name => silent({name}));
      const streams = new Map(NAMES.map((name, index) => [name, aLeasedStream({stream: `00${index}`})]));
      const {shared} = decide({workers, streams});
      assert.equal(shared.runs.get('my-run')?.machine_deaths, 1);
    });

    for (const {name, changes, bad_verdicts} of [
      {name: 'stays silent: a bad verdict', changes: {}, bad_verdicts: 1},
      {
        name: 'fails after the first heartbeat of its host: no bad verdict',
        changes: {hello_at: later(-60), heartbeat_at: later(-1), fault: 'the disk is full'},
        bad_verdicts: 0,
      },
    ])
      it(`that is a canary and ${name}`, () => {
        const silence_guard = GUARD && {...GUARD, since_at: at(-60)};
        const canary = booting({is_canary: true, ...changes});
        const {shared} = decide({workers: [canary], zone: {silence_guard}});
        assert.equal(shared.zones.get(ZONE)?.silence_guard?.bad_verdicts, bad_verdicts);
      });

    it('with the third stream of its run that fails for its machines: the run is paused', () => {
      const run = {machine_failed_streams: 2};
      const stream = aLeasedStream({faults: MAX_FAULTS - 1});
      const {streams, shared} = decide({workers: [silent()], stream, run});
      assert.deepEqual(
        [[...streams.values()].map(({status}) => status), shared.runs.get('my-run')?.status],
        [['failed'], 'paused'],
      );
    });

    it('with another slice of its job: the attempt ends once', () => {
      const [first = '', second = ''] = NAMES;
      const workers = [first, second].map(name => working({name, work: 'job:my-job'}));
      const job = aRunningJob({slices: 2});
      const works = new Map(
        workers.map(({name}) => [name, {stream: undefined, job, suspectStream: undefined, members: workers}]),
      );
      const {jobs} = decide({workers, node: 'PREEMPTED', works});
      assert.deepEqual(
        jobs.map(({ended}) => ended.attempts.map(({outcome}) => outcome)),
        [['preempted']],
      );
    });

    it('whose name a node has that is not ours: its record has its cost once', () => {
      const nodes = sortNodes([aTpu({labels: {}})], {deployment: 'gleaner', unreachable: [], at_ms: NOW});
      const worker = working({costs: {'my-run': 2}});
      const {attempts} = decide({workers: [worker], inputs: {nodes}, stored: false});
      assert.deepEqual(
        [...attempts.values()].map(({cost_usd, gone_at}) => ({cost_usd, gone_at})),
        [{cost_usd: 2, gone_at: later(0)}],
      );
    });

    for (const {name, changes, tries_at} of [
      {
        name: 'and was the try of an hour: another one follows',
        changes: {born_at: later(-60)},
        tries_at: later(60),
      },
      {
        name: 'but its agent was up: the next try waits',
        changes: {born_at: later(-60), agent_at: later(-9)},
        tries_at: null,
      },
    ])
      it(`that Cloud TPU took in its boot ${name}`, () => {
        const limiter = stopped(3700);
        const taken = aWorker({
          phase: 'booting',
          phase_since_at: later(-60),
          ready_at: later(-60),
          ...changes,
        });
        const {shared} = decide({workers: [taken], node: 'PREEMPTED', zone: {limiter}, pool: {limiter}});
        const next_at = tries_at ?? limiter.next_at;
        assert.deepEqual(
          [shared.zones.get(ZONE), shared.pool].map(document => document?.limiter.next_at),
          [next_at, next_at],
        );
      });

    it('as the tenth in a row, of a run that has stored a shard since: the count begins again', () => {
      const run = {machine_deaths: 9, machine_deaths_shards: 4, total_shards: 4};
      const inputs = {shardsByRun: new Map([['my-run', 5]])};
      const {shared} = decide({workers: [silent()], stream: aLeasedStream(), run, inputs});
      const {status, machine_deaths} = shared.runs.get('my-run') ?? assert.fail();
      assert.deepEqual([status, machine_deaths], ['active', 1]);
    });

    it('that lost its stream by silence, with the worker that holds it now: the stream is charged once and free', () => {
      const [first = '', second = ''] = NAMES;
      const suspect = {work: 'my-run/007', epoch: 2, total_shards: 0};
      const lost = silent({name: first, work: null, epoch: null, suspect});
      const lease = {worker: second, incarnation: 2, epoch: 3};
      const held = aLeasedStream({lease});
      const broken = working({name: second, fault: 'the machine broke'});
      const works = new Map([
        [first, {stream: undefined, job: undefined, suspectStream: held}],
        [second, {stream: held, job: undefined, suspectStream: undefined}],
      ]);
      const writes = decide({workers: [lost, broken], works});
      assert.deepEqual(
        [...writes.streams.values()].map(({status, lease, faults}) => ({status, lease, faults})),
        [{status: 'pending', lease: null, faults: 1}],
      );
    });

    it('that fell silent earlier: the stream that it lost is charged', () => {
      const suspect = {work: 'my-run/007', epoch: 3, total_shards: 0};
      const lost = silent({work: null, epoch: null, suspect, phase: 'idle'});
      const writes = decide({workers: [lost], suspected: aLeasedStream({lease: null, status: 'pending'})});
      assert.deepEqual(
        [...writes.streams.values()].map(({faults}) => faults),
        [1],
      );
    });

    const unheard: {name: string; worker: Partial<Worker>; stops: boolean}[] = [
      {name: 'and never sent anything: creates of its zone and pool stop', worker: {}, stops: true},
      {
        name: 'after a hello of its host: creates of its zone and pool stop',
        worker: {hello_at: at(0), heartbeat_at: later(-3600), activity: 'setup', boot_step: 'environment'},
        stops: true,
      },
      {
        name: 'with the reason of its host: creates of its zone and pool stop',
        worker: {hello_at: at(0), heartbeat_at: later(-1), fault: 'the disk is full'},
        stops: true,
      },
      {
        name: 'but its agent was up before a repair: it proves nothing about boots',
        worker: {hello_at: at(0), agent_at: at(0)},
        stops: false,
      },
      {name: 'with an earlier bundle: it is no evidence about boots', worker: {bundle: 'old'}, stops: false},
    ];
    for (const {name, worker, stops} of unheard)
      it(`that is the fifth in a row to fail its boot ${name}`, () => {
        const limiter = {...OPEN, failed_boots: 4, bundle: CONFIG.bundle};
        const writes = decide({workers: [booting(worker)], zone: {limiter}, pool: {limiter}});
        assert.deepEqual([kinds(writes), writes.attempts.size], [['delete'], 1]);
        const scopes = writes.stops.map(({text}) => /^Creates of (\S+ \S+) stop/.exec(text)?.[1]);
        assert.deepEqual(scopes, stops ? [`zone ${ZONE}`, 'pool tpu'] : []);
        assert.equal(writes.shared.pool?.limiter.failed_boots, stops ? 5 : 4);
      });
  });

  it('deletes a node that no document knows, but not from a list that is 61 s old', () => {
    const deletes = (age_ms: number) => {
      const nodes = sortNodes([aTpu()], {deployment: 'gleaner', unreachable: [], at_ms: NOW - age_ms});
      return kinds(decide({workers: [undefined], wanted: 'unwanted', inputs: {nodes}}));
    };
    assert.deepEqual([deletes(59_000), deletes(61_000)], [['delete'], []]);
  });

  it('ends a refused incarnation whose node shows after all: its record gets the bill', () => {
    const refused = aWorker({phase: 'gone', incarnation: 2, born_at: at(0), refused: true});
    const [deleting, again] = [
      decide({workers: [refused]}),
      decide({workers: [{...refused, refused: false}]}),
    ];
    assert.deepEqual([kinds(deleting), kinds(again)], [['delete'], ['delete']]);
    const incarnations = [...deleting.attempts.values()].map(({incarnation}) => incarnation);
    assert.deepEqual(incarnations, [2]);
    assert.equal(again.attempts.size, 0, 'its record exists');
  });

  describe('bills an incarnation when its node is gone', () => {
    const costs = {'my-run': 2, '_downloads/my-run': 1};
    const deleting = working({...{phase: 'deleting', work: null, epoch: null}, costs});

    it('to its run, its pool, its month and its attempt', () => {
      const writes = decide({workers: [deleting], node: null, wanted: 'unwanted'});
      const {runs, pool, spending} = writes.shared;
      const run = runs.get('my-run') ?? assert.fail();
      assert.deepEqual([run.spent_usd, run.cost_usd, pool?.spent_usd], [2, 2, 3]);
      assert.deepEqual([run.spent_download_usd, run.download_usd], [1, 1]);
      assert.deepEqual(spending?.months, {'2026-01': 3});
      assert.deepEqual(
        [...writes.attempts.values()].map(({cost_usd, gone_at}) => ({cost_usd, gone_at})),
        [{cost_usd: 3, gone_at: later(0)}],
      );
    });

    it('to the churn of its zone, without the tokens that it did not store', () => {
      const worker = {...deleting, computed_tokens: 900, unstored_tokens: 200};
      const {shared} = decide({workers: [worker], node: null, attempt: {cause_kind: 'taken'}});
      const [{lives, life_s, preemptions, usd, tokens} = assert.fail()] = shared.zones.get(ZONE)?.churn ?? [];
      assert.deepEqual([lives, life_s, preemptions, usd, tokens], [1, 3600, 1, 3, 700]);
    });

    for (const [name, attempt, before, after, ready_at = at(0)] of [
      ['counts its preemption', {cause_kind: 'taken'}, 1, 2],
      ['counts that of a node before READY', {cause_kind: 'taken', provider_state: 'PREEMPTED'}, 1, 2, null],
      ['counts no request without a node', {cause_kind: 'taken', provider_state: null}, 1, 1, null],
      ['counts no other end', {cause_kind: 'silent'}, 1, 1],
      [
        'counts the preemption of a node that is seen again once',
        {cause_kind: 'taken', gone_at: at(9)},
        1,
        1,
      ],
      ['counts nothing in a run without a count', {cause_kind: 'taken'}, null, null],
    ] as const)
      it(`and ${name}`, () => {
        const run = {preemptions: before};
        const workers = [{...deleting, ready_at}];
        const {shared} = decide({workers, node: null, wanted: 'unwanted', attempt, run});
        assert.equal(shared.runs.get('my-run')?.preemptions, after);
        const [{preemptions} = {preemptions: 0}] = shared.zones.get(ZONE)?.churn ?? [];
        if (before !== null && !('gone_at' in attempt))
          assert.equal(preemptions, after - before, 'of the zone');
      });
  });
});
