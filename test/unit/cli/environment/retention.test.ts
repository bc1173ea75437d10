import assert from 'node:assert/strict';
import {symlinkSync, utimesSync} from 'node:fs';
import {markUsed, removeUnused} from '../../../../cli/build/environment/environment.ts';
import {Folder} from '../../../support/machine/folder.ts';

describe('The cache of worker environments', () => {
  const folder = new Folder(afterEach);

  it('the cache of worker environments keeps the three environments used last, and an unfinished one', async () => {
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

  it('the cache of worker environments fails no build where another process removes an environment, or the whole cache', async () => {
    for (const digit of 'abcd') folder.put(`${digit.repeat(16)}/environment.tar.gz`, 'env');
    const gone = 'e'.repeat(16);
    symlinkSync(folder.at('absent'), folder.at(gone));
    await markUsed(folder.at(gone));
    assert.equal(await removeUnused(folder.path), 1);
    assert.equal(await removeUnused(folder.at('absent')), 0);
  });
});
