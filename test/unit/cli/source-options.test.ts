import assert from 'node:assert/strict';
import {environmentOf, sourceOf} from '../../../cli/jobs/source.ts';

describe('the options of a source', () => {
  it('remove the source with null, which goes with no version', async () => {
    assert.deepEqual(await sourceOf({repo: null}), {source: null});
    assert.deepEqual(await sourceOf({}), {source: undefined});
    await assert.rejects(sourceOf({repo: null, branch: 'main'}), /There is no version without a repository/);
  });
});

describe('the options of an environment', () => {
  it('keep the parts that they do not name', async () => {
    assert.equal(await environmentOf({}), undefined);
    assert.deepEqual(await environmentOf({jax_version: '1.2.3'}), {jax_version: '1.2.3'});
  });

  it('remove a part with null', async () => {
    const options = {jax_version: null, setup_script: null, config: null, ramfs_dir: null};
    const removed = {jax_version: null, setup_script: null, config_file: null, ramfs_dir: null};
    assert.deepEqual(await environmentOf(options), removed);
  });
});
