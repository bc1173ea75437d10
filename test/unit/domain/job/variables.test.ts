/** Variables that a job may set. */
import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import {z} from 'zod';
import {jobFields} from '../../../../shared/contracts/messages/job-schemas.ts';
import {parseValue} from '../../../../shared/contracts/messages/schemas.ts';
import {variableProblem} from '../../../../shared/domain/job/variables.ts';
import {ROOT} from '../../../support/machine/process.ts';

const JOBS = 'worker-startup/gleaner_worker/jobs/';
const read = (file: string) => readFileSync(`${ROOT}${file}`, 'utf8');
const submitted = (fields: object) =>
  parseValue(z.strictObject(jobFields), {code: '1', ...fields}, 'The job');

describe('a variable of a job', () => {
  const code = ['job_folder.py', 'prepared_code.py', 'cluster.py'].map(name => read(JOBS + name)).join('');
  const set = [...code.matchAll(/"([A-Z][A-Z0-9]*_?[A-Z0-9_]*)": /g)].map(([, name = '']) => name);
  const ofTpuEnv = /^(ACCELERATOR_TYPE|CHIPS_PER_HOST_BOUNDS|HOST_BOUNDS|TOPOLOGY)$/;
  const [, table = ''] = read('docs/jobs.md').split('| variable | |');
  const named = [...(table.split('\n\n')[0] ?? '').matchAll(/^\|.*?\|/gm)].flatMap(([cell]) =>
    [...cell.matchAll(/`([A-Z_…]+)`/g)].map(([, name = '']) => name.replace('…', 'X')),
  );

  it('may have no name that the agent sets, by its code and by docs/jobs.md', () => {
    assert.ok(set.includes('JOB_RESULT') && set.includes('PATH') && named.includes('RAMFS_DIR'));
    const free = [...set, ...named].filter(name => !ofTpuEnv.test(name) && !variableProblem(name));
    assert.deepEqual(free, []);
  });

  for (const name of 'LD_PRELOAD PYTHONSTARTUP GCE_METADATA_HOST TPU_X lower A-B 1A'
    .split(' ')
    .concat('', 'A\n'))
    it(`may not have the name ${JSON.stringify(name)}`, () => {
      assert.throws(() => submitted({env: {[name]: 'x'}}), /^Rejected: The job is not valid: env: /);
      assert.throws(() => submitted({secrets: {[name]: 'w'}}), /^Rejected: The job is not valid: secrets: /);
    });

  it('may have another name, such as that of a default that it replaces', () => {
    for (const name of ['TZ', 'XLA_FLAGS', 'WANDB_API_KEY', '_X', 'HOMES', 'MY_PATH'])
      assert.deepEqual(submitted({env: {[name]: 'x'}}).env, {[name]: 'x'});
  });

  it('has a limit of number and size', () => {
    const many = (count: number, value: string) =>
      Object.fromEntries(Array.from({length: count}, (_, index) => [`A${index}`, value]));
    assert.ok(submitted({env: many(64, 'x'), secrets: many(16, 'wandb')}));
    assert.throws(() => submitted({env: many(65, 'x')}), /at most 64 variables/);
    assert.throws(() => submitted({secrets: many(17, 'wandb')}), /at most 16 variables/);
    assert.throws(() => submitted({env: {A: 'ü'.repeat(16_384)}}), /at most 32768 bytes/);
    assert.throws(() => submitted({env: {A: 'a\0b'}}), /a text without a zero byte/);
  });
});
