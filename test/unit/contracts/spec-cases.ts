/** Specs that `test/worker/records/test_spec.py` and the tests of `run.json` share. */
import {readFileSync} from 'node:fs';
import {fileURLToPath} from 'node:url';
import {completeSpec, type RunSpec, type RunSpecInput} from '../../../shared/contracts/spec/spec.ts';
import {defaultsOf} from '../../../shared/domain/records/field.ts';
import {recordKeys, specKeys} from '../../../shared/domain/records/spec-keys.ts';
import {aConfig} from '../../world/builders.ts';

export const file = (path: string) => fileURLToPath(new URL(`../../../${path}`, import.meta.url));

type Cases = {
  valid: {name: string; given: RunSpecInput; completes: RunSpecInput}[];
  frozen: {name: string; spec: RunSpecInput; spec_hash: string; completes: RunSpecInput}[];
  invalid: {name: string; given: unknown; says: string[]}[];
};
const {defaults, ...cases}: Cases & {defaults: {model: string; dtype: 'bf16'}} = JSON.parse(
  readFileSync(file('test/fixtures/spec-cases.json'), 'utf8'),
);
const record = defaultsOf(recordKeys);
const {features: _features, project: _project, moments: _moments, ...values} = defaultsOf(specKeys);
export const DEFAULTS = {...values, ...defaults, record} as RunSpec;
export {cases};

export const complete = (input: RunSpecInput) => completeSpec(input, aConfig());
export const expected = (changes: RunSpecInput) => ({
  ...{...DEFAULTS, ...changes},
  record: {...record, ...changes.record},
});
