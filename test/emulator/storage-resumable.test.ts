import assert from 'node:assert/strict';
import {readdirSync} from 'node:fs';
import {connect} from 'node:net';
import {join} from 'node:path';
import {sizeOf} from '../../emulator/storage/blobs.ts';
import {useLocalCloud} from '../contract/local-cloud.ts';
import {tokenUrl} from '../support/machine/a-cloud.ts';
import {until} from '../support/machine/until.ts';
import {PlainHttp, uploads} from './plain-http.ts';

describe('A resumable upload to Cloud Storage over HTTP', () => {
  const cloud = useLocalCloud({storage_only: true});
  const http = new PlainHttp(cloud);
  const begin = async (name: string, query = '', headers: Record<string, string> = {}) => {
    const answer = await http.call('POST', `${uploads}?uploadType=resumable&name=${name}${query}`, {
      headers,
    });
    return (answer.headers.get('location') ?? '').replace(tokenUrl(cloud()), '');
  };
  const piece = (location: string, range: string, body?: string) =>
    http.call('PUT', location, {headers: {'content-range': `bytes ${range}`}, body: body ?? null});

  it('reports the stored range, stores overlapping bytes once, and returns the object at its end', async () => {
    const location = await begin('steps');
    const fresh = await piece(location, '*/*');
    assert.deepEqual([fresh.status, fresh.headers.get('range')], [308, null]);
    const first = await piece(location, '0-3/*', 'abcd');
    assert.deepEqual([first.status, first.headers.get('range')], [308, 'bytes=0-3']);
    const again = await piece(location, '2-5/*', 'cdef');
    assert.equal(again.headers.get('range'), 'bytes=0-5');
    assert.equal((await piece(location, '9-9/*', 'x')).status, 400);
    const last = await piece(location, '6-7/8', 'gh');
    assert.deepEqual([last.status, last.json.size], [200, '8']);
    assert.equal((await http.get('steps')).text, 'abcdefgh');
    const repeated = await piece(location, '*/8');
    assert.deepEqual([repeated.status, repeated.json.generation], [200, last.json.generation]);
  });

  it('ends with a request that states the total length', async () => {
    const location = await begin('length');
    await piece(location, '0-3/*', 'abcd');
    assert.equal((await piece(location, '*/4')).status, 200);
    const empty = await begin('length-0');
    assert.equal((await piece(empty, '*/0')).status, 200);
    assert.equal((await http.get('length-0')).text, '');
  });

  it('checks its condition at the start and at the end', async () => {
    const location = await begin('cond', '&ifGenerationMatch=0');
    await http.put('cond', 'other writer');
    assert.equal((await piece(location, '0-3/4', 'mine')).status, 412);
    assert.equal((await http.get('cond')).text, 'other writer');
    const late = await http.call('POST', `${uploads}?uploadType=resumable&name=cond&ifGenerationMatch=0`);
    assert.equal(late.status, 412);
  });

  it('is unknown after it was cancelled', async () => {
    const location = await begin('cancelled');
    await piece(location, '0-3/*', 'abcd');
    assert.equal((await http.call('DELETE', location)).status, 499);
    assert.equal((await piece(location, '*/*')).status, 404);
    assert.deepEqual(
      readdirSync(join(cloud().dir, 'uploads')).filter(file => location.includes(file)),
      [],
    );
  });

  it('keeps the bytes that arrived before the connection broke', async () => {
    const location = await begin('broken');
    const id = location.split('upload_id=')[1] ?? '';
    await new Promise<void>(done => {
      const socket = connect(cloud().port, '127.0.0.1', () => {
        socket.write(
          `PUT ${location} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Range: bytes 0-99/100\r\nContent-Length: 100\r\n\r\nabcdefgh`,
        );
        void until('eight bytes arrived', () => sizeOf(join(cloud().dir, 'uploads', id)) === 8).then(() =>
          socket.destroy(),
        );
      });
      socket.once('close', () => done());
    });
    const status = await piece(location, '*/100');
    assert.deepEqual([status.status, status.headers.get('range')], [308, 'bytes=0-7']);
    assert.equal((await http.get('broken')).status, 404);
    assert.equal((await piece(location, '8-99/100', 'x'.repeat(92))).status, 200);
  });

  it('ends with 400 when its bytes are fewer than announced', async () => {
    const location = await begin('short', '', {'x-upload-content-length': '10'});
    assert.equal((await piece(location, '0-*/*', 'four')).status, 400);
    assert.equal((await http.get('short')).status, 404);
  });

  for (const range of ['bytes', 'bytes 5', 'lines 0-1/2', 'bytes 0-1']) {
    it(`answers 400 to Content-Range "${range}"`, async () => {
      const location = await begin('odd');
      const answer = await http.call('PUT', location, {headers: {'content-range': range}, body: 'ab'});
      assert.equal(answer.status, 400);
    });
  }
});
