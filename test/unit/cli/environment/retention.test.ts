import assert from 'node:assert/strict';
import {utimesSync} from 'node:fs';
import {markUsed, removeUnused} from '../../../../cli/build/environment/retention.ts';
import {Folder} from '../../../support/folder.ts';

describe('The cache of worker environments', () => {
  const folder = new Folder();
  afterEach(() => folder.end());

  it('keeps the three environments used last, and an unfinished one', async () => {
    const keys = [...'abcde'].map(digit => digit.repeat(16));
    for (const [index, key] of keys.entries()) {
      folder.put(`${key}/environment.tar.gz`, 'env');
      utimesSync(folder.at(key), index, index);
    }
    folder.put(`${'f'.repeat(16)}.unfinished.1/tree/file`, '');
    await markUsed(folder.at(keys[0] ?? ''));
    assert.equal(await removeUnused(folder.path), 2);
    const kept = [keys[0], keys[3], keys[4], `${'f'.repeat(16)}.unfinished.1`];
    assert.deepEqual(folder.names('.').sort(), kept);
  });
});
