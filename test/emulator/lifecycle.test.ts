import assert from 'node:assert/strict';
import {join} from 'node:path';
import {Storage} from '@google-cloud/storage';
import {CloudDatabase} from '../../emulator/state/database.ts';
import {sweepExpired} from '../../emulator/storage/lifecycle.ts';
import {openStorage} from '../../emulator/storage/routes.ts';
import {Scratch, tokenUrl} from '../support/machine/a-cloud.ts';

const DAY_MS = 86_400_000;

describe('a lifecycle rule of the local cloud', () => {
  const scratch = new Scratch(after);

  it('deletes a shard a day after its custom time and a partial after 30 days, and nothing else', async () => {
    const dir = scratch.dir();
    const cloud = await scratch.cloud({dir, storage_only: true});
    const bucket = new Storage({apiEndpoint: tokenUrl(cloud), projectId: cloud.project}).bucket(cloud.bucket);
    const now = Date.now();
    const customTime = new Date(now + 6 * DAY_MS).toISOString();
    const save = (name: string, metadata = {}) => bucket.file(name).save('x', {resumable: false, metadata});
    await save('activations/my-run/tpu_0/shard_0001.safetensors', {customTime});
    await save('activations/my-run/manifest.json');
    await save('datasets/my-run/stream_000.jsonl', {customTime});
    await save('partials/my-run/tpu_0/0001');
    await cloud.close();
    const database = new CloudDatabase(join(dir, 'cloud.db'));
    const {objects} = openStorage(dir, database, () => {});
    const swept = async (days: number) =>
      (await sweepExpired(objects, now + days * DAY_MS)).map(name => name.split('/').slice(1).join('/'));
    assert.deepEqual(await swept(6.5), []);
    assert.deepEqual(await swept(7.1), ['activations/my-run/tpu_0/shard_0001.safetensors']);
    assert.deepEqual(await swept(7.1), []);
    assert.deepEqual(await swept(400), ['partials/my-run/tpu_0/0001']);
    database.close();
  });
});
