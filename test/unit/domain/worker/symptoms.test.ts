import assert from 'node:assert/strict';
import {protos} from '@google-cloud/tpu';
import type {Symptom} from '../../../../shared/domain/records/worker.ts';
import {at, found} from '../../../world/builders.ts';
import {decide, LIMITS, wellIn, wordsOf} from './provider-cases.ts';

const {Symptom: ApiSymptom} = protos.google.cloud.tpu.v2;

/** Death of a silent agent by symptom. Only MESH_BUILD_FAIL cannot come from a stream. */
const SYMPTOMS: Record<string, {then: 'silent' | 'broken'}> = {
  LOW_MEMORY: {then: 'silent'},
  OUT_OF_MEMORY: {then: 'silent'},
  EXECUTE_TIMED_OUT: {then: 'silent'},
  MESH_BUILD_FAIL: {then: 'broken'},
  HBM_OUT_OF_MEMORY: {then: 'silent'},
  PROJECT_ABUSE: {then: 'silent'},
};

describe('symptoms of a node', () => {
  it('the table names every symptom of the API', () => {
    assert.deepEqual(
      [...wordsOf(ApiSymptom.SymptomType)].sort(),
      ['SYMPTOM_TYPE_UNSPECIFIED', ...Object.keys(SYMPTOMS)].sort(),
    );
  });

  const symptom = (kind: string, seconds: number): Symptom => ({
    ...{symptom: kind, details: `details of ${kind}`, created_at: at(seconds)},
  });

  for (const [kind, {then}] of Object.entries(SYMPTOMS)) {
    const seen = found('READY', {symptoms: [symptom(kind, 60)]});

    it(`${kind} is recorded once and ends no worker by itself`, () => {
      const {worker, events, death} = decide(wellIn('working'), seen, 100);
      assert.deepEqual([worker.phase, death, worker.symptoms], ['working', undefined, seen.symptoms]);
      assert.equal(events.length, 1);
      assert.match(events[0] ?? '', new RegExp(`shows ${kind}, .*details of ${kind}`));
      assert.deepEqual(decide(worker, seen, 130), {worker, actions: [], events: []});
    });

    it(`a silent agent after ${kind} dies of kind ${then}, and the cause names the symptom`, () => {
      const {death} = decide(wellIn('working'), seen, LIMITS.silent_s + 1);
      assert.equal(death?.kind, then);
      assert.match(death?.cause ?? '', new RegExp(`said nothing.*${kind}`));
    });

    it(`${kind} from before READY is ignored`, () => {
      const early = found('READY', {symptoms: [symptom(kind, -1)]});
      assert.deepEqual(decide(wellIn('working'), early).worker.symptoms, []);
      assert.deepEqual(decide(wellIn('creating'), early).worker.symptoms, []);
    });
  }

  it('a worker keeps its five newest symptoms, unknown symptoms included', () => {
    const many = Array.from({length: 9}, (_, index) => symptom('LOW_MEMORY', 90 - index));
    const {worker, events} = decide(
      wellIn('working'),
      found('READY', {symptoms: [...many, symptom('TOO_HOT', 99)]}),
      100,
    );
    assert.equal(worker.symptoms.length, 5);
    assert.match(events.at(-1) ?? '', /TOO_HOT, a symptom that is new to us/);
  });
});
