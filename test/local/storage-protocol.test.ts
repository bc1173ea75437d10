import assert from 'node:assert/strict';
import {readdirSync} from 'node:fs';
import {connect} from 'node:net';
import {join} from 'node:path';
import {gunzipSync, gzipSync} from 'node:zlib';
import type {LocalCloud} from '../../local/cloud.ts';
import {Scratch} from './a-cloud.ts';

type GoogleError = {code: number; message: string; errors: {reason: string}[]};
type Answer = {
  status: number;
  headers: Headers;
  text: string;
  json: {error: GoogleError; generation?: string; size?: string; contentType?: string};
};

describe('Cloud Storage over HTTP', () => {
  const scratch = new Scratch();
  let cloud: LocalCloud;
  before(async () => {
    cloud = await scratch.cloud({storage_only: true});
  });
  after(() => scratch.end());

  const call = async (method: string, path: string, init: RequestInit = {}): Promise<Answer> => {
    const response = await fetch(cloud.url + path, {method, redirect: 'manual', ...init});
    const text = await response.text();
    const isJson = response.headers.get('content-type')?.includes('json');
    return {status: response.status, headers: response.headers, text, json: JSON.parse(isJson ? text : '{}')};
  };
  const b = '/storage/v1/b/gleaner-local';
  const up = '/upload/storage/v1/b/gleaner-local/o';
  const put = (
    name: string,
    body: string | Buffer<ArrayBuffer>,
    query = '',
    headers: Record<string, string> = {},
  ) =>
    call('POST', `${up}?uploadType=media&name=${encodeURIComponent(name)}${query}`, {
      body,
      headers,
    });
  const get = (name: string, headers: Record<string, string> = {}) =>
    call('GET', `${b}/o/${encodeURIComponent(name)}?alt=media`, {headers});
  const related = (parts: string[], newline = '\r\n', boundary = 'b') => ({
    body: `--${boundary}${newline}${parts.join(`${newline}--${boundary}${newline}`)}${newline}--${boundary}--${newline}`,
    headers: {'content-type': `multipart/related; boundary="${boundary}"`},
  });

  describe('preconditions', () => {
    const cases = [
      {given: 'none', query: 'ifGenerationMatch=0', status: 200},
      {given: 'none', query: 'ifGenerationMatch=GEN', status: 412},
      {given: 'none', query: 'ifGenerationNotMatch=0', status: 412},
      {given: 'one', query: 'ifGenerationMatch=0', status: 412},
      {given: 'one', query: 'ifGenerationMatch=GEN', status: 200},
      {given: 'one', query: 'ifGenerationMatch=1', status: 412},
      {given: 'one', query: 'ifGenerationNotMatch=GEN', status: 412},
      {given: 'one', query: 'ifGenerationNotMatch=0', status: 200},
      {given: 'one', query: 'ifMetagenerationMatch=1', status: 200},
      {given: 'one', query: 'ifMetagenerationMatch=2', status: 412},
      {given: 'one', query: 'ifMetagenerationNotMatch=1', status: 412},
      {given: 'one', query: 'ifGenerationMatch=x', status: 400},
    ];
    for (const [i, {given, query, status}] of cases.entries()) {
      it(`a write with ${query} where there is ${given} is ${status}`, async () => {
        const name = `conditions/${i}`;
        const generation = given === 'one' ? String((await put(name, 'old')).json.generation) : '7';
        const answer = await put(name, 'new', `&${query.replace('GEN', generation)}`);
        assert.equal(answer.status, status);
        const now = await get(name);
        if (status === 200) assert.equal(now.text, 'new');
        else assert.equal(given === 'one' ? now.text : now.status, given === 'one' ? 'old' : 404);
        if (status === 412) {
          const {error} = answer.json;
          assert.deepEqual([error.code, error.errors[0]?.reason], [412, 'conditionNotMet']);
        }
      });
    }

    it('of ten writers that create one name at once, exactly one wins', async () => {
      const answers = await Promise.all(
        Array.from({length: 10}, (_, i) => put('race', `writer ${i}`, '&ifGenerationMatch=0')),
      );
      const winners = answers.flatMap(({status}, i) => (status === 200 ? [i] : []));
      assert.equal(winners.length, 1);
      assert.ok(answers.every(({status}) => status === 200 || status === 412));
      assert.equal((await get('race')).text, `writer ${winners[0]}`);
    });

    it('a read that has the newest already gets 304', async () => {
      const {generation} = (await put('known', 'x')).json;
      const path = `${b}/o/known?ifGenerationNotMatch=${generation}`;
      assert.equal((await call('GET', path)).status, 304);
      assert.equal((await call('GET', `${b}/o/known?ifGenerationMatch=1`)).status, 412);
    });
  });

  describe('checksums', () => {
    const crc = 'mnG7TA=='; // of "hello"
    const cases: {name: string; headers: Record<string, string>; status: number}[] = [
      {name: 'right crc32c', headers: {'x-goog-hash': `crc32c=${crc}`}, status: 200},
      {name: 'wrong crc32c', headers: {'x-goog-hash': 'crc32c=AAAAAA=='}, status: 400},
      {
        name: 'right crc32c, wrong md5',
        headers: {'x-goog-hash': `crc32c=${crc},md5=${'A'.repeat(22)}==`},
        status: 400,
      },
      {name: 'wrong content-md5', headers: {'content-md5': `${'A'.repeat(22)}==`}, status: 400},
    ];
    for (const {name, headers, status} of cases) {
      it(`an upload with ${name} is ${status}`, async () => {
        assert.equal((await put(`sum ${name}`, 'hello', '', headers)).status, status);
        assert.equal((await get(`sum ${name}`)).status, status === 200 ? 200 : 404);
      });
    }

    it('are checked in the metadata of a multipart upload and of a resumable one', async () => {
      for (const [sum, status] of [
        [crc, 200],
        ['AAAAAA==', 400],
      ] as const) {
        const resource = JSON.stringify({name: `sum part ${status}`, crc32c: sum});
        const parts = [
          `Content-Type: application/json\r\n\r\n${resource}`,
          'Content-Type: text/plain\r\n\r\nhello',
        ];
        assert.equal(
          (await call('POST', `${up}?uploadType=multipart`, {method: 'POST', ...related(parts)})).status,
          status,
        );
        const begun = await call('POST', `${up}?uploadType=resumable&name=sum-resumable-${status}`, {
          body: JSON.stringify({crc32c: sum}),
        });
        const location = (begun.headers.get('location') ?? '').replace(cloud.url, '');
        assert.equal((await call('PUT', location, {body: 'hello'})).status, status);
      }
    });

    it('that fail leave nothing on disk', async () => {
      await put('sum wrong', 'hello', '', {'x-goog-hash': 'crc32c=AAAAAA=='});
      assert.deepEqual(
        readdirSync(join(cloud.dir, 'uploads')).filter(name => name.startsWith('draft-')),
        [],
      );
    });
  });

  describe('multipart uploads', () => {
    const head = 'Content-Type: application/json; charset=UTF-8';
    const bytes = 'line\r\n--not the boundary\r\n\n--bb\n';
    for (const [name, newline] of [
      ['CRLF', '\r\n'],
      ['LF alone, as Python writes it', '\n'],
    ] as const) {
      it(`are read with line ends ${name}, whatever the bytes look like`, async () => {
        const resource = JSON.stringify({name: `multi ${name}`, contentType: 'text/x', metadata: {a: 'b'}});
        const parts = [
          [head, '', resource].join(newline),
          ['Content-Type: text/y', 'Content-Transfer-Encoding: binary', '', bytes].join(newline),
        ];
        const answer = await call(
          'POST',
          `${up}?uploadType=multipart`,
          related(parts, newline, 'bound=ary 1'),
        );
        assert.equal(answer.status, 200);
        assert.equal(answer.json.contentType, 'text/x');
        assert.equal((await get(`multi ${name}`)).text, bytes);
      });
    }

    for (const [name, init] of Object.entries({
      'without a boundary': {body: 'x', headers: {'content-type': 'multipart/related'}},
      'that is cut off': {
        ...related([`${head}\r\n\r\n{"name":"cut"}`, 'Content-Type: a/b\r\n\r\nbytes']),
        body: `--b\r\n${head}\r\n\r\n{"name":"cut"}\r\n--b\r\nContent-Type: a/b\r\n\r\nbytes`,
      },
      'whose metadata is no JSON': related([`${head}\r\n\r\n{oops`, 'Content-Type: a/b\r\n\r\nbytes']),
      'whose metadata is a list': related([`${head}\r\n\r\n[]`, 'Content-Type: a/b\r\n\r\nbytes']),
      'whose metadata has values that are no strings': related([
        `${head}\r\n\r\n{"name":"cut","metadata":{"n":1}}`,
        'Content-Type: a/b\r\n\r\nbytes',
      ]),
      'with one part': related([`${head}\r\n\r\n{"name":"cut"}`]),
      'with a header in a field': related([
        `${head}\r\n\r\n{"name":"cut","contentType":"a\\r\\nX-Evil: 1"}`,
        'Content-Type: a/b\r\n\r\nbytes',
      ]),
    })) {
      it(`${name} are a 400 and store nothing`, async () => {
        const answer = await call('POST', `${up}?uploadType=multipart`, init);
        assert.equal(answer.status, 400, answer.text);
        assert.equal((await get('cut')).status, 404);
      });
    }
  });

  describe('resumable uploads', () => {
    const begin = async (name: string, query = '', headers: Record<string, string> = {}) => {
      const answer = await call('POST', `${up}?uploadType=resumable&name=${name}${query}`, {headers});
      return (answer.headers.get('location') ?? '').replace(cloud.url, '');
    };
    const piece = (location: string, range: string, body?: string) =>
      call('PUT', location, {headers: {'content-range': `bytes ${range}`}, body: body ?? null});

    it('tell how far they are, take overlapping bytes once, and end with the object', async () => {
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
      assert.equal((await get('steps')).text, 'abcdefgh');
      const repeated = await piece(location, '*/8');
      assert.deepEqual([repeated.status, repeated.json.generation], [200, last.json.generation]);
    });

    it('end where their length is said only at the end', async () => {
      const location = await begin('length');
      await piece(location, '0-3/*', 'abcd');
      assert.equal((await piece(location, '*/4')).status, 200);
      const empty = await begin('length-0');
      assert.equal((await piece(empty, '*/0')).status, 200);
      assert.equal((await get('length-0')).text, '');
    });

    it('are refused at their start and again at their end when the condition does not hold', async () => {
      const location = await begin('cond', '&ifGenerationMatch=0');
      await put('cond', 'someone else');
      assert.equal((await piece(location, '0-3/4', 'mine')).status, 412);
      assert.equal((await get('cond')).text, 'someone else');
      const late = await call('POST', `${up}?uploadType=resumable&name=cond&ifGenerationMatch=0`);
      assert.equal(late.status, 412);
    });

    it('can be cancelled, and are unknown afterwards', async () => {
      const location = await begin('cancelled');
      await piece(location, '0-3/*', 'abcd');
      assert.equal((await call('DELETE', location)).status, 499);
      assert.equal((await piece(location, '*/*')).status, 404);
      assert.deepEqual(
        readdirSync(join(cloud.dir, 'uploads')).filter(file => location.includes(file)),
        [],
      );
    });

    it('keep what arrived before the connection broke', async () => {
      const location = await begin('broken');
      await new Promise<void>(done => {
        const socket = connect(cloud.port, '127.0.0.1', () => {
          socket.write(
            `PUT ${location} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Range: bytes 0-99/100\r\nContent-Length: 100\r\n\r\nabcdefgh`,
          );
          setTimeout(() => socket.destroy(), 50);
        });
        socket.once('close', () => done());
      });
      const status = await piece(location, '*/100');
      assert.deepEqual([status.status, status.headers.get('range')], [308, 'bytes=0-7']);
      assert.equal((await get('broken')).status, 404);
      assert.equal((await piece(location, '8-99/100', 'x'.repeat(92))).status, 200);
    });

    it('end with 400 when they hold less than they announced', async () => {
      const location = await begin('short', '', {'x-upload-content-length': '10'});
      assert.equal((await piece(location, '0-*/*', 'four')).status, 400);
      assert.equal((await get('short')).status, 404);
    });

    for (const range of ['bytes', 'bytes 5', 'lines 0-1/2', 'bytes 0-1']) {
      it(`are a 400 with Content-Range "${range}"`, async () => {
        const location = await begin('odd');
        const answer = await call('PUT', location, {headers: {'content-range': range}, body: 'ab'});
        assert.equal(answer.status, 400);
      });
    }
  });

  describe('downloads', () => {
    const cases = [
      {range: 'bytes=2-5', status: 206, text: '2345', content_range: 'bytes 2-5/10'},
      {range: 'bytes=7-', status: 206, text: '789', content_range: 'bytes 7-9/10'},
      {range: 'bytes=-3', status: 206, text: '789', content_range: 'bytes 7-9/10'},
      {range: 'bytes=0-999', status: 206, text: '0123456789', content_range: 'bytes 0-9/10'},
      {range: 'bytes=0-1,4-5', status: 200, text: '0123456789', content_range: null},
      {range: 'lines=1-2', status: 200, text: '0123456789', content_range: null},
    ];
    for (const {range, status, text, content_range} of cases) {
      it(`of ${range} are ${status}`, async () => {
        await put('digits', '0123456789');
        const answer = await get('digits', {range});
        assert.deepEqual(
          [answer.status, answer.text, answer.headers.get('content-range')],
          [status, text, content_range],
        );
      });
    }

    it('past the end are 416 and say how long the object is', async () => {
      await put('digits', '0123456789');
      const answer = await get('digits', {range: 'bytes=10-'});
      assert.deepEqual([answer.status, answer.headers.get('content-range')], [416, 'bytes */10']);
      await put('none', '');
      assert.equal((await get('none', {range: 'bytes=0-0'})).status, 416);
      assert.equal((await get('none')).status, 200);
    });

    it('work at all three addresses, and HEAD has the same headers and no body', async () => {
      await put('a dir/ä?#%.txt', 'here', '', {'content-type': 'text/plain'});
      const plain = '/gleaner-local/a%20dir/%C3%A4%3F%23%25.txt';
      const encoded = encodeURIComponent('a dir/ä?#%.txt');
      for (const path of [`${b}/o/${encoded}?alt=media`, `/download${b}/o/${encoded}?alt=media`, plain]) {
        const answer = await call('GET', path);
        assert.deepEqual([answer.text, answer.headers.get('content-type')], ['here', 'text/plain'], path);
        assert.match(answer.headers.get('x-goog-hash') ?? '', /^crc32c=.+,md5=.+$/);
        const head = await call('HEAD', path);
        assert.deepEqual([head.status, head.text, head.headers.get('content-length')], [200, '', '4']);
      }
    });

    it('unzip what is stored zipped for those who cannot', async () => {
      const zipped = gzipSync('plain text');
      await put('zipped', zipped, '&contentEncoding=gzip');
      assert.equal((await get('zipped', {'accept-encoding': 'identity'})).text, 'plain text');
      const raw = await fetch(`${cloud.url}/gleaner-local/zipped`, {headers: {'accept-encoding': 'gzip'}});
      assert.equal(raw.headers.get('content-encoding'), 'gzip');
      assert.equal(Number(raw.headers.get('content-length')), zipped.length);
      await raw.arrayBuffer();
      assert.equal(gunzipSync(zipped).toString(), 'plain text');
    });

    it('that began before an overwrite or a delete end with the old bytes', async () => {
      const old = Buffer.alloc(20 << 20, 'old');
      await put('slow', old);
      const response = await fetch(`${cloud.url}/gleaner-local/slow`);
      await put('slow', 'new');
      await call('DELETE', `${b}/o/slow`);
      assert.ok(Buffer.from(await response.arrayBuffer()).equals(old));
    });
  });

  describe('bad requests', () => {
    const long = encodeURIComponent('ä'.repeat(513));
    const cases = [
      {
        name: 'an unknown upload type',
        method: 'POST',
        path: `${up}?uploadType=pigeon&name=x`,
        status: 400,
        says: /pigeon/,
      },
      {name: 'no name', method: 'POST', path: `${up}?uploadType=media`, status: 400, says: /it is empty/},
      {
        name: 'a name too long',
        method: 'POST',
        path: `${up}?uploadType=media&name=${long}`,
        status: 400,
        says: /1026 bytes/,
      },
      {
        name: 'a line break in a name',
        method: 'POST',
        path: `${up}?uploadType=media&name=a%0Ab`,
        status: 400,
        says: /line break/,
      },
      {
        name: 'the name ..',
        method: 'POST',
        path: `${up}?uploadType=media&name=..`,
        status: 400,
        says: /"\.\."/,
      },
      {name: 'an unknown bucket', method: 'GET', path: '/storage/v1/b/nope/o', status: 404, says: /nope/},
      {name: 'half a percent sign', method: 'GET', path: `${b}/o/%E4%A`, status: 400, says: /percent/},
      {
        name: 'a foreign page token',
        method: 'GET',
        path: `${b}/o?pageToken=!!`,
        status: 400,
        says: /pageToken/,
      },
      {
        name: 'a page size that is none',
        method: 'GET',
        path: `${b}/o?maxResults=-1`,
        status: 400,
        says: /maxResults/,
      },
      {
        name: 'slashes that are not encoded',
        method: 'GET',
        path: `${b}/o/a/b.txt?alt=media`,
        status: 404,
        says: /a%2Fb.txt/,
      },
      {name: 'an unknown path', method: 'GET', path: '/what/is/this', status: 404, says: /\/what\/is\/this/},
      {name: 'an unknown method', method: 'PATCH', path: '/_local', status: 404, says: /PATCH \/_local/},
      {
        name: 'an unknown upload',
        method: 'PUT',
        path: `${up}?upload_id=..%2F..%2Fcloud.db`,
        status: 404,
        says: /No such upload/,
      },
      {
        name: 'a bad bucket name',
        method: 'POST',
        path: '/storage/v1/b',
        body: '{"name":"../x"}',
        status: 400,
        says: /bucket name/,
      },
      {
        name: 'a patch that is no JSON',
        method: 'PATCH',
        path: `${b}/o/there`,
        body: '{',
        status: 400,
        says: /Failed to parse/,
      },
      {
        name: 'a patch with a number',
        method: 'PATCH',
        path: `${b}/o/there`,
        body: '{"contentType":1}',
        status: 400,
        says: /contentType/,
      },
      {
        name: 'a composition of nothing',
        method: 'POST',
        path: `${b}/o/x/compose`,
        body: '{}',
        status: 400,
        says: /sourceObjects/,
      },
      {
        name: 'a composition of what is not',
        method: 'POST',
        path: `${b}/o/x/compose`,
        body: '{"sourceObjects":[{"name":"nope"}]}',
        status: 404,
        says: /nope/,
      },
      {
        name: 'a description too large',
        method: 'PATCH',
        path: `${b}/o/there`,
        body: ' '.repeat(2 << 20),
        status: 413,
        says: /larger/,
      },
    ];
    before(() => put('there', 'x'));
    for (const {name, method, path, body, status, says} of cases) {
      it(`${name}: ${status} in Google's shape, and the cloud lives on`, async () => {
        const answer = await call(method, path, body === undefined ? {} : {body});
        assert.equal(answer.status, status, answer.text);
        const {error} = answer.json;
        assert.equal(error.code, status);
        assert.match(error.message, says);
        assert.equal(error.errors.length, 1);
        assert.equal((await get('there')).text, 'x');
      });
    }

    it('from a web page elsewhere or under another host name are 403', async () => {
      const page = await call('GET', '/_local', {headers: {origin: 'https://evil.example'}});
      assert.equal(page.status, 403);
      const rebound = await new Promise<string>(done => {
        const socket = connect(cloud.port, '127.0.0.1', () => {
          socket.write('GET /_local HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n');
        });
        let text = '';
        socket.on('data', data => {
          text += data;
        });
        socket.once('close', () => done(text));
      });
      assert.match(rebound, /^HTTP\/1.1 403 /);
    });

    it('that are not HTTP at all end the connection and nothing else', async () => {
      await new Promise<void>(done => {
        const socket = connect(cloud.port, '127.0.0.1', () => socket.write('\x16\x03\x01 not http\r\n\r\n'));
        socket.resume();
        socket.on('error', () => {});
        socket.once('close', () => done());
      });
      assert.equal((await get('there')).text, 'x');
    });
  });
});
