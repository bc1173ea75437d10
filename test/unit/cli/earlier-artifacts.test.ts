import assert from 'node:assert/strict';
import {createHash} from 'node:crypto';
import {linkSync} from 'node:fs';
import {restoreFile} from '../../../cli/deploy/earlier-artifacts.ts';
import {GoogleProject, PROJECT} from '../../support/google/google-project.ts';
import {Folder} from '../../support/machine/folder.ts';

const NAME = 'environments/env.tar.gz';
const sha256 = createHash('sha256').update('env').digest('hex');

describe('An artefact of an earlier deployment', () => {
  const folder = new Folder(afterEach);
  let google: GoogleProject;
  beforeEach(async () => {
    google = await new GoogleProject().start();
    google.makeBucket('data');
    await google.put('data', NAME, 'env');
  });
  afterEach(() => google.close());
  const restore = (digest = sha256, name = NAME) =>
    restoreFile({project: PROJECT, bucket: 'data', endpoint: google.url}, name, {
      path: folder.at('env.tar.gz'),
      sha256: digest,
    });

  it('an artefact of an earlier deployment takes the place of another file, and the cache that shares this file keeps its bytes', async () => {
    linkSync(folder.put('cache.tar.gz', 'other'), folder.at('env.tar.gz'));
    assert.equal(await restore(), undefined);
    assert.equal(folder.text('env.tar.gz'), 'env');
    assert.equal(folder.text('cache.tar.gz'), 'other');
  });

  it('an artefact of an earlier deployment is not read again where its file has the bytes', async () => {
    folder.put('env.tar.gz', 'env');
    assert.equal(await restore(), undefined);
    assert.deepEqual(
      google.calls.filter(call => call.startsWith('GET')),
      [],
    );
  });

  it('an artefact of an earlier deployment that is damaged or gone is named, and leaves no file', async () => {
    assert.match((await restore('0'.repeat(64))) ?? '', new RegExp(`data/${NAME} has sha256 ${sha256}`));
    assert.match((await restore(sha256, 'environments/x')) ?? '', /data\/environments\/x is gone/);
    assert.deepEqual(folder.names(), []);
  });
});
