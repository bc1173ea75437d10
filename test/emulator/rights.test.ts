import assert from 'node:assert/strict';
import type {LocalCloud} from '../../emulator/cloud.ts';
import {accessTokenOf} from '../../emulator/http/guard.ts';
import {accountsOf} from '../../emulator/http/identity.ts';
import {Scratch, writeUrl} from './a-cloud.ts';

const ACCOUNTS = accountsOf('gleaner-local', 'gleaner');
const SHARD = 'activations/my-run/tpu_0/shard_0001.safetensors';
const MANIFEST = 'activations/my-run/manifest.json';

describe('a service account on the local cloud', () => {
  const scratch = new Scratch();
  let cloud: LocalCloud;
  before(async () => {
    cloud = await scratch.cloud({storage_only: true});
    for (const name of [SHARD, MANIFEST, 'logs/other/1.log'])
      assert.equal((await send(writeUrl(cloud), 'POST', upload(name), {})).status, 200);
  });
  after(() => scratch.end());

  const upload = (name: string, more = '') =>
    `/upload/storage/v1/b/gleaner-local/o?uploadType=media&name=${encodeURIComponent(name)}${more}`;
  const at = (name: string) => `/storage/v1/b/gleaner-local/o/${encodeURIComponent(name)}`;
  const send = (url: string, method: string, path: string, headers: Record<string, string>) =>
    fetch(`${url}${path}`, {method, headers, ...(method === 'POST' ? {body: '{}'} : {})});

  const requests: {who: 'worker' | 'control'; does: string; method: string; path: string; status: number}[] =
    [
      {who: 'worker', does: 'stores a new shard', method: 'POST', path: upload(`${SHARD}2`), status: 200},
      {
        who: 'worker',
        does: 'plants a manifest',
        method: 'POST',
        path: upload('activations/x/manifest.json'),
        status: 403,
      },
      {
        who: 'worker',
        does: 'plants a manifest in pieces',
        method: 'POST',
        path: upload('activations/manifest.json').replace('media', 'resumable'),
        status: 403,
      },
      {who: 'worker', does: 'overwrites a shard', method: 'POST', path: upload(SHARD), status: 403},
      {
        who: 'worker',
        does: 'creates a shard again',
        method: 'POST',
        path: upload(SHARD, '&ifGenerationMatch=0'),
        status: 412,
      },
      {who: 'worker', does: 'deletes a shard', method: 'DELETE', path: at(SHARD), status: 403},
      {
        who: 'worker',
        does: 'copies a shard',
        method: 'POST',
        path: `${at(SHARD)}/copyTo/b/gleaner-local/o/logs%2Fx`,
        status: 403,
      },
      {who: 'worker', does: 'changes the metadata of a shard', method: 'PATCH', path: at(SHARD), status: 403},
      {
        who: 'worker',
        does: 'writes a stream',
        method: 'POST',
        path: upload('datasets/x/stream_000.jsonl'),
        status: 403,
      },
      {who: 'worker', does: 'writes a bundle', method: 'POST', path: upload('bundles/x.tar.gz'), status: 403},
      {
        who: 'worker',
        does: 'frees a stopped run',
        method: 'DELETE',
        path: at('system/stops/my-run.json'),
        status: 403,
      },
      {
        who: 'worker',
        does: 'reads the log of another VM',
        method: 'GET',
        path: at('logs/other/1.log'),
        status: 403,
      },
      {
        who: 'worker',
        does: 'lists the whole bucket',
        method: 'GET',
        path: '/storage/v1/b/gleaner-local/o',
        status: 403,
      },
      {who: 'control', does: 'replaces a manifest', method: 'POST', path: upload(MANIFEST), status: 200},
      {
        who: 'control',
        does: 'writes a stream',
        method: 'POST',
        path: upload('datasets/x/stream_000.jsonl'),
        status: 403,
      },
      {
        who: 'control',
        does: 'keeps the stop of a run',
        method: 'POST',
        path: upload('system/stops/x.json'),
        status: 200,
      },
    ];
  for (const {who, does, method, path, status} of requests)
    it(`${status < 300 ? 'is permitted' : 'is refused'}: ${who} ${does}`, async () => {
      const headers = {authorization: `Bearer ${accessTokenOf(cloud.token, ACCOUNTS[who])}`};
      assert.equal((await send(cloud.url, method, path, headers)).status, status);
    });
});
