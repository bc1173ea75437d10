/** Secrets of a local cloud: only the access token of an account with the role reads them. */
import assert from 'node:assert/strict';
import {chmodSync, mkdirSync, writeFileSync} from 'node:fs';
import {dirname} from 'node:path';
import type {LocalCloud} from '../../emulator/cloud.ts';
import {accessTokenOf} from '../../emulator/http/access-tokens.ts';
import {accountsOf} from '../../emulator/http/identity.ts';
import {secretFile} from '../../emulator/secrets.ts';
import {Scratch} from '../support/machine/a-cloud.ts';

const GIT = 'projects/gleaner-local/secrets/git';
const {worker, control, 'worker-api': api} = accountsOf('gleaner-local', 'gleaner');
/** A text with a known CRC-32C, 0xe3069283. */
const CHECKED = '123456789';

describe('A secret of a local cloud', () => {
  const scratch = new Scratch(after);
  let cloud: LocalCloud;
  before(async () => {
    const secret_readers = {[GIT]: [api], 'projects/gleaner-local/secrets/none': [api]};
    cloud = await scratch.cloud({secret_readers});
    for (const [version, text] of Object.entries({2: 'second', 9: 'ninth', 10: CHECKED}))
      put('git', version, text);
    put('other', '1', 'other');
    put('git', '3', 'readable by others', 0o644);
  });

  function put(secret: string, version: string, text: string, mode = 0o600): void {
    const file = secretFile(cloud.dir, secret, version);
    mkdirSync(dirname(file), {recursive: true});
    writeFileSync(file, text);
    chmodSync(file, mode);
  }

  const as = (email: string) => accessTokenOf(cloud.token, email);
  const forged = (email: string) => as(email).replace(/^[^.]+/, Buffer.from(api).toString('base64url'));
  const cases: {name: string; token?: () => string; path: string; status: number; word?: string}[] = [
    {name: 'without a token', path: `${GIT}/versions/latest`, status: 401, word: 'UNAUTHENTICATED'},
    {name: 'of no account', token: () => cloud.token, path: `${GIT}/versions/latest`, status: 401},
    {name: 'of another key', token: () => forged(control), path: `${GIT}/versions/latest`, status: 401},
    {
      name: 'of the control plane',
      token: () => as(control),
      path: `${GIT}/versions/latest`,
      ...{status: 403, word: 'PERMISSION_DENIED'},
    },
    {name: 'of a VM', token: () => as(worker), path: `${GIT}/versions/latest`, status: 403},
    {name: 'of another secret', path: 'projects/gleaner-local/secrets/other/versions/1', status: 403},
    {name: 'of another project', path: 'projects/other/secrets/git/versions/1', status: 403},
    {name: 'of a folder', path: 'projects/gleaner-local/secrets/git%2F..%2Fother/versions/1', status: 403},
    {name: 'of a missing version', path: `${GIT}/versions/4`, status: 404, word: 'NOT_FOUND'},
    {name: 'of a version that is no number', path: `${GIT}/versions/..%2F..%2Ftoken`, status: 404},
    {
      name: 'of a secret without a version',
      path: 'projects/gleaner-local/secrets/none/versions/latest',
      status: 404,
    },
    {name: 'that other users can read', path: `${GIT}/versions/3`, status: 404},
  ];
  for (const {name, token, path, status, word} of cases)
    it(`is refused with ${status} to a request ${name}`, async () => {
      const given = token ? token() : name === 'without a token' ? undefined : as(api);
      const headers: Record<string, string> = given === undefined ? {} : {authorization: `Bearer ${given}`};
      const answer = await fetch(`${cloud.url}/v1/${path}:access`, {headers});
      assert.equal(answer.status, status);
      const {error} = (await answer.json()) as {error: {status: string}};
      if (word) assert.equal(error.status, word);
    });

  it('is read by the account with the role, with its checksum', async () => {
    const read = async (version: string) => {
      const headers = {authorization: `Bearer ${as(api)}`};
      return (await fetch(`${cloud.url}/v1/${GIT}/versions/${version}:access`, {headers})).json();
    };
    const payload = {data: Buffer.from(CHECKED).toString('base64'), dataCrc32c: '3808858755'};
    assert.deepEqual(await read('latest'), {name: 'projects/1/secrets/git/versions/10', payload});
    const {payload: second} = (await read('2')) as {payload: {data: string}};
    assert.equal(Buffer.from(second.data, 'base64').toString(), 'second');
  });
});
