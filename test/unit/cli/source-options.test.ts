import assert from 'node:assert/strict';
import {hash} from 'node:crypto';
import {environmentOf, sourceOf, upload} from '../../../cli/jobs/source.ts';
import type {Cloud} from '../../../client/cloud/cloud.ts';
import {FakeBucket} from '../../world/bucket.ts';
import {callAtOnce} from '../../world/call.ts';

describe('the options of a source', () => {
  it('the options of a source remove the source with null, which goes with no version', async () => {
    assert.deepEqual(await sourceOf({repo: null}), {source: null});
    assert.deepEqual(await sourceOf({}), {source: undefined});
    await assert.rejects(sourceOf({repo: null, branch: 'main'}), /--repo none goes with no --branch/);
  });
});

describe('a packed folder whose name in the bucket is taken', () => {
  it('a packed folder whose name in the bucket is taken is not taken for stored: the error has both digests', async () => {
    const bucket = new FakeBucket(Date.now);
    const cloud = {objects: bucket.through(callAtOnce)} as unknown as Cloud;
    const code = {source: undefined, object: 'code/a.tar.gz', bytes: Buffer.from('mine')};
    await upload(cloud, code);
    await upload(cloud, code);
    // A forger makes other bytes of the same size and CRC-32C.
    const {crc32c} = bucket.info(code.object) ?? {};
    bucket.put(code.object, 'evil', {}, {crc32c: crc32c ?? ''});
    const sha256 = hash('sha256', 'evil');
    await assert.rejects(upload(cloud, code), (error: Error) => {
      assert.ok(error.message.includes(`it has bytes of sha256 ${sha256}`), error.message);
      return error.message.includes(`these are 4 bytes of sha256 ${hash('sha256', 'mine')}`);
    });
  });
});

describe('the options of an environment', () => {
  it('the options of an environment keep the parts that they do not name', async () => {
    assert.equal(await environmentOf({}), undefined);
    assert.deepEqual(await environmentOf({jax_version: '1.2.3'}), {jax_version: '1.2.3'});
  });

  it('the options of an environment remove a part with null', async () => {
    const options = {jax_version: null, setup_script: null, config: null, ramfs_dir: null};
    const removed = {jax_version: null, setup_script: null, config_file: null, ramfs_dir: null};
    assert.deepEqual(await environmentOf(options), removed);
  });
});
