import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  type Ceilings,
  clipPool,
  modelProblem,
  poolProblem,
  sourcesProblem,
} from '../../../../shared/domain/billing/ceilings.ts';
import {decideScale} from '../../../../shared/domain/commands/settings.ts';
import {livingAmong, slotsOf, wantedSlots} from '../../../../shared/domain/fleet/slots.ts';
import {parseWorkerName} from '../../../../shared/domain/names.ts';
import type {Phase, Worker} from '../../../../shared/domain/records/worker.ts';
import {aConfig, at, aWorker, FREE, T0} from '../../../world/builders.ts';

const NONE: Ceilings = {
  max_workers: 100,
  max_budget_usd: null,
  allowed_zones: null,
  model_sources: ['hub', 'gs://'],
};
const {pool: POOL} = aConfig();
const PHASES: Phase[] = ['creating', 'booting', 'idle', 'working', 'draining', 'deleting', 'gone'];

describe('the ceilings of a deployment', () => {
  const scaled: {name: string; settings: object; ceilings: Partial<Ceilings>; says: RegExp | undefined}[] = [
    {
      name: 'the largest allowed number of workers',
      settings: {workers_per_zone: 100},
      ceilings: {},
      says: undefined,
    },
    {
      name: 'one worker too many',
      settings: {workers_per_zone: 101},
      ceilings: {},
      says: /are 101.*allows 100 \(GLEANER_MAX_WORKERS\)/,
    },
    {
      name: 'too many workers over several zones',
      settings: {workers_per_zone: 51, zones: ['us-central1-a', 'us-east1-c']},
      ceilings: {},
      says: /51 workers in each of 2 zones are 102/,
    },
    {
      name: 'a zone that is not allowed',
      settings: {zones: ['us-east1-c']},
      ceilings: {allowed_zones: ['us-central1-a']},
      says: /allows the zones us-central1-a \(GLEANER_ALLOWED_ZONES\), not us-east1-c/,
    },
    {
      name: 'no workers in a zone that is no longer allowed',
      settings: {workers_per_zone: 0},
      ceilings: {allowed_zones: ['moon-central1-a']},
      says: undefined,
    },
    {
      name: 'no workers in a new zone that is not allowed',
      settings: {workers_per_zone: 0, zones: ['us-east1-c']},
      ceilings: {allowed_zones: ['us-central1-a']},
      says: /GLEANER_ALLOWED_ZONES/,
    },
    {
      name: 'any zone without a list of allowed zones',
      settings: {zones: ['us-east1-c']},
      ceilings: {},
      says: undefined,
    },
  ];
  for (const {name, settings, ceilings, says} of scaled)
    it(`scale to ${name} is ${says ? 'rejected and names the ceiling' : 'applied'}`, () => {
      const decision = decideScale(POOL, settings, undefined, {ceilings: {...NONE, ...ceilings}}, at(0));
      assert.equal(decision.kind, says ? 'rejected' : 'applied');
      if (decision.kind === 'rejected') assert.match(decision.reason, says ?? /^$/);
    });

  const models: {model: string; sources: string[]; isAllowed: boolean}[] = [
    {model: 'Qwen/Qwen2.5-0.5B', sources: ['hub'], isAllowed: true},
    {model: 'gpt2', sources: ['hub'], isAllowed: true},
    {model: 'Qwen/Qwen2.5-0.5B', sources: ['gs://'], isAllowed: false},
    {model: 'Qwen/Qwen2.5-0.5B', sources: ['hub:Qwen/'], isAllowed: true},
    {model: 'Qwen2/Qwen2.5-0.5B', sources: ['hub:Qwen/'], isAllowed: false},
    {model: 'Qwen/Qwen3-8B', sources: ['hub:Qwen/Qwen3-8B'], isAllowed: true},
    {model: 'Qwen/Qwen3-8B-x', sources: ['hub:Qwen/Qwen3-8B'], isAllowed: false},
    {model: 'gs://models/a', sources: ['hub'], isAllowed: false},
    {model: 'gs://models/a', sources: ['gs://'], isAllowed: true},
    {model: 'gs://models/a', sources: ['gs://models/'], isAllowed: true},
    {model: 'gs://models-of-others/a', sources: ['gs://models/'], isAllowed: false},
    {model: 'gs://models/public/a', sources: ['gs://models/public/'], isAllowed: true},
    {model: 'gs://models/private/a', sources: ['gs://models/public/'], isAllowed: false},
    {model: 'gs://models/public', sources: ['gs://models/public'], isAllowed: true},
    {model: '/models/a', sources: ['hub', 'gs://'], isAllowed: false},
    {model: '../models', sources: ['hub', 'gs://'], isAllowed: false},
    {model: '~/a', sources: ['hub', 'gs://'], isAllowed: false},
    {model: 'a/b/c', sources: ['hub', 'gs://'], isAllowed: false},
    {model: '/models/a', sources: ['folder'], isAllowed: true},
  ];
  for (const {model, sources, isAllowed} of models)
    it(`model ${model} is ${isAllowed ? 'allowed' : 'refused'} by the sources ${sources.join(', ')}`, () => {
      const why = modelProblem(model, {...NONE, model_sources: sources});
      assert.equal(why === undefined, isAllowed, why);
      if (why) assert.match(why, /GLEANER_MODEL_SOURCES/);
    });

  it('weights of reductions are from the sources of models too', () => {
    const ceilings = {...NONE, model_sources: ['hub:org/']};
    const of = (weights: string) => sourcesProblem({model: 'org/m', project: [{weights}]}, ceilings) ?? '';
    assert.equal(of('org/saes'), '');
    assert.match(of('gs://b/w'), /^weights "gs:\/\/b\/w" is not from a source/);
    assert.match(sourcesProblem({model: 'gs://b/m'}, ceilings) ?? '', /^model "gs:\/\/b\/m" is not/);
    const own = {model: 'gs://b/m', features: [{weights: 'org/saes', path: "it's/{layer}/"}]};
    assert.match(
      sourcesProblem(own, {...ceilings, model_sources: ['gs://'], has_internet: false}) ?? '',
      /^weights "org\/saes" is on the hub, .* mirror org\/saes --path 'it'\\''s\/\*\/\*\*'`, and set `weights`/,
    );
  });

  it('a pool document above the ceilings is clipped to them', () => {
    const edited = {...POOL, workers_per_zone: 1e9, zones: ['us-central1-a', 'moon-central1-a']};
    const {zones, workers_per_zone} = clipPool(edited, {
      ...NONE,
      max_workers: 3,
      allowed_zones: ['us-central1-a'],
    });
    assert.deepEqual([zones, workers_per_zone], [['us-central1-a'], 3]);
    assert.equal(poolProblem(POOL, NONE), undefined);
  });

  it('no plan wants more workers than the ceiling, living workers included', () => {
    const zone = fc.constantFrom('us-central1-a', 'us-east1-c', 'europe-west4-b');
    const name = fc.tuple(zone, fc.nat(3)).map(([zone, slot]) => `tpu-${zone}-${slot}`);
    const living = fc.uniqueArray(fc.record({name, phase: fc.constantFrom(...PHASES)}), {
      selector: ({name}) => name,
    });
    const bound = fc.uniqueArray(name);
    fc.assert(
      fc.property(
        living,
        bound,
        fc.nat(20),
        fc.nat(8),
        fc.uniqueArray(zone),
        (given, own, streams, most, zones) => {
          const workers = new Map<string, Worker>(given.map(each => [each.name, aWorker(each)]));
          const pool = {...POOL, zones, workers_per_zone: 3};
          const {wanted} = wantedSlots(pool, workers, streams, T0, {...FREE, bound: new Set(own), most});
          const created = [...wanted].filter(each => (workers.get(each)?.phase ?? 'gone') === 'gone');
          const alive = livingAmong(workers);
          assert.ok(wanted.size <= most);
          assert.ok(created.length <= Math.max(0, most - alive), `${created} beside ${alive} of ${most}`);
          const places = new Set(slotsOf(pool).map(slot => slot.name));
          assert.ok([...wanted].every(each => places.has(each) && parseWorkerName(each)));
        },
      ),
      {numRuns: 2000},
    );
  });
});
