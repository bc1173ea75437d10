/** Specs that `test/worker/records/test_spec.py` and the tests of `run.json` share. */
import {readFileSync} from 'node:fs';
import {fileURLToPath} from 'node:url';
import {completeSpec, type RunSpec, type RunSpecInput} from '../../../shared/contracts/spec/spec.ts';
import {aConfig} from '../../support/world/builders.ts';

export const file = (path: string) => fileURLToPath(new URL(`../../../${path}`, import.meta.url));

type Cases = {
  defaults: RunSpec;
  valid: {name: string; given: RunSpecInput; completes: RunSpecInput}[];
  frozen: {name: string; spec: RunSpecInput; spec_hash: string; completes: RunSpecInput}[];
  invalid: {name: string; given: unknown; says: string[]}[];
};
export const cases: Cases = JSON.parse(readFileSync(file('test/fixtures/spec-cases.json'), 'utf8'));

export const complete = (input: RunSpecInput) => completeSpec(input, aConfig());
export const expected = (changes: RunSpecInput) => ({
  ...cases.defaults,
  ...changes,
  record: {...cases.defaults.record, ...changes.record},
});
