import assert from 'node:assert/strict';
import {rmSync, truncateSync} from 'node:fs';
import {connect} from 'node:net';
import {join} from 'node:path';
import {gunzipSync, gzipSync} from 'node:zlib';
import {useLocalCloud} from '../contract/local-cloud.ts';
import {tokenUrl} from '../support/machine/a-cloud.ts';
import {objects, PlainHttp, uploads} from './plain-http.ts';

describe('Cloud Storage over HTTP', () => {
  const cloud = useLocalCloud({storage_only: true});
  const http = new PlainHttp(cloud);

  describe('for downloads', () => {
    const cases = [
      {range: 'bytes=2-5', status: 206, text: '2345', content_range: 'bytes 2-5/10'},
      {range: 'bytes=7-', status: 206, text: '789', content_range: 'bytes 7-9/10'},
      {range: 'bytes=-3', status: 206, text: '789', content_range: 'bytes 7-9/10'},
      {range: 'bytes=0-999', status: 206, text: '0123456789', content_range: 'bytes 0-9/10'},
      {range: 'bytes=0-1,4-5', status: 200, text: '0123456789', content_range: null},
      {range: 'lines=1-2', status: 200, text: '0123456789', content_range: null},
    ];
    for (const {range, status, text, content_range} of cases) {
      it(`answers ${status} to the range ${range}`, async () => {
        await http.put('digits', '0123456789');
        const answer = await http.get('digits', {range});
        assert.deepEqual(
          [answer.status, answer.text, answer.headers.get('content-range')],
          [status, text, content_range],
        );
      });
    }

    it('answers 416 with the size of the object to a range past the end', async () => {
      await http.put('digits', '0123456789');
      const answer = await http.get('digits', {range: 'bytes=10-'});
      assert.deepEqual([answer.status, answer.headers.get('content-range')], [416, 'bytes */10']);
      await http.put('none', '');
      assert.equal((await http.get('none', {range: 'bytes=0-0'})).status, 416);
      assert.equal((await http.get('none')).status, 200);
    });

    it('serves an object at three addresses, and the same headers without a body for HEAD', async () => {
      await http.put('a dir/ä?#%.txt', 'here', '', {'content-type': 'text/plain'});
      const plain = '/gleaner-local/a%20dir/%C3%A4%3F%23%25.txt';
      const encoded = encodeURIComponent('a dir/ä?#%.txt');
      for (const path of [
        `${objects}/${encoded}?alt=media`,
        `/download${objects}/${encoded}?alt=media`,
        plain,
      ]) {
        const answer = await http.call('GET', path);
        assert.deepEqual([answer.text, answer.headers.get('content-type')], ['here', 'text/plain'], path);
        assert.match(answer.headers.get('x-goog-hash') ?? '', /^crc32c=.+,md5=.+$/);
        const head = await http.call('HEAD', path);
        assert.deepEqual([head.status, head.text, head.headers.get('content-length')], [200, '', '4']);
      }
    });

    it('decompresses a gzip object for a client that does not accept gzip', async () => {
      const zipped = gzipSync('plain text');
      await http.put('zipped', zipped, '&contentEncoding=gzip');
      assert.equal((await http.get('zipped', {'accept-encoding': 'identity'})).text, 'plain text');
      const raw = await fetch(`${tokenUrl(cloud())}/gleaner-local/zipped`, {
        headers: {'accept-encoding': 'gzip'},
      });
      assert.equal(raw.headers.get('content-encoding'), 'gzip');
      assert.equal(Number(raw.headers.get('content-length')), zipped.length);
      await raw.arrayBuffer();
      assert.equal(gunzipSync(zipped).toString(), 'plain text');
    });

    const losses = [
      {name: 'the end of its blob', lose: (blob: string) => truncateSync(blob, 4), left: '0123'},
      {name: 'every byte of its blob', lose: (blob: string) => truncateSync(blob, 0), left: ''},
      {name: 'its blob but not its view', lose: (blob: string) => rmSync(blob), left: '0123456789'},
    ];
    for (const {name, lose, left} of losses) {
      it(`ends the download of an object that lost ${name} with the bytes that are left`, async () => {
        const stored = await http.put('lossy', '0123456789');
        lose(join(cloud().dir, 'blobs', String(stored.json.generation)));
        const answer = await http.get('lossy');
        assert.deepEqual([answer.status, answer.text], [200, left]);
        for (const header of ['content-length', 'x-goog-stored-content-length'])
          assert.equal(answer.headers.get(header), String(left.length), header);
      });
    }

    it('ends a download with the old bytes after an overwrite and a delete', async () => {
      const old = Buffer.alloc(20 << 20, 'old');
      await http.put('slow', old);
      const response = await fetch(`${tokenUrl(cloud())}/gleaner-local/slow`);
      await http.put('slow', 'new');
      await http.call('DELETE', `${objects}/slow`);
      assert.ok(Buffer.from(await response.arrayBuffer()).equals(old));
    });
  });

  describe('for bad requests', () => {
    const long = encodeURIComponent('ä'.repeat(513));
    const cases: {
      name: string;
      method?: string;
      path: string;
      body?: string;
      status?: number;
      says: RegExp;
    }[] = [
      {
        name: 'an unknown upload type',
        method: 'POST',
        path: `${uploads}?uploadType=pigeon&name=x`,
        says: /pigeon/,
      },
      {name: 'no name', method: 'POST', path: `${uploads}?uploadType=media`, says: /it is empty/},
      {
        name: 'a name over 1024 bytes',
        method: 'POST',
        path: `${uploads}?uploadType=media&name=${long}`,
        says: /1026 bytes/,
      },
      {
        name: 'a line break in a name',
        method: 'POST',
        path: `${uploads}?uploadType=media&name=a%0Ab`,
        says: /line break/,
      },
      {name: 'the name ..', method: 'POST', path: `${uploads}?uploadType=media&name=..`, says: /"\.\."/},
      {name: 'an unknown bucket', path: '/storage/v1/b/nope/o', status: 404, says: /nope/},
      {name: 'half a percent sign', path: `${objects}/%E4%A`, says: /percent/},
      {name: 'a foreign page token', path: `${objects}?pageToken=!!`, says: /pageToken/},
      {name: 'a negative page size', path: `${objects}?maxResults=-1`, says: /maxResults/},
      {
        name: 'slashes without percent-encoding',
        path: `${objects}/a/b.txt?alt=media`,
        status: 404,
        says: /a%2Fb.txt/,
      },
      {name: 'an unknown path', path: '/what/is/this', status: 404, says: /\/what\/is\/this/},
      {name: 'an unknown method', method: 'PATCH', path: '/_local', status: 404, says: /PATCH \/_local/},
      {
        name: 'an unknown upload',
        method: 'PUT',
        path: `${uploads}?upload_id=..%2F..%2Fcloud.db`,
        status: 404,
        says: /No such upload/,
      },
      {
        name: 'a bad bucket name',
        method: 'POST',
        path: '/storage/v1/b',
        body: '{"name":"../x"}',
        says: /bucket name/,
      },
      {
        name: 'a patch that is not JSON',
        method: 'PATCH',
        path: `${objects}/there`,
        body: '{',
        says: /Failed to parse/,
      },
      {
        name: 'a number for a text field',
        method: 'PATCH',
        path: `${objects}/there`,
        body: '{"contentType":1}',
        says: /contentType/,
      },
      {
        name: 'a composition without sources',
        method: 'POST',
        path: `${objects}/x/compose`,
        body: '{}',
        says: /sourceObjects/,
      },
      {
        name: 'a composition of an unknown object',
        method: 'POST',
        path: `${objects}/x/compose`,
        body: '{"sourceObjects":[{"name":"nope"}]}',
        status: 404,
        says: /nope/,
      },
      {
        name: 'a resource over 1 MiB',
        method: 'PATCH',
        path: `${objects}/there`,
        body: ' '.repeat(2 << 20),
        status: 413,
        says: /larger/,
      },
    ];
    before(() => http.put('there', 'x'));
    for (const {name, method = 'GET', path, body, status = 400, says} of cases) {
      it(`answers ${status} in Google's error format to ${name}, and serves the next request`, async () => {
        const answer = await http.call(method, path, body === undefined ? {} : {body});
        assert.equal(answer.status, status, answer.text);
        const {error} = answer.json;
        assert.equal(error.code, status);
        assert.match(error.message, says);
        assert.equal(error.errors.length, 1);
        assert.equal((await http.get('there')).text, 'x');
      });
    }

    it('closes a connection with bytes that are not HTTP, and serves the next request', async () => {
      await new Promise<void>(done => {
        const socket = connect(cloud().port, '127.0.0.1', () =>
          socket.write('\x16\x03\x01 not http\r\n\r\n'),
        );
        socket.resume();
        socket.on('error', () => {});
        socket.once('close', () => done());
      });
      assert.equal((await http.get('there')).text, 'x');
    });
  });
});
