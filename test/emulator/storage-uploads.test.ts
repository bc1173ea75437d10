import assert from 'node:assert/strict';
import {readdirSync} from 'node:fs';
import {connect} from 'node:net';
import {join} from 'node:path';
import type {LocalCloud} from '../../emulator/cloud.ts';
import {sizeOf} from '../../emulator/storage/blobs.ts';
import {Scratch, until} from './a-cloud.ts';
import {objects, PlainHttp, uploads} from './plain-http.ts';

describe('Cloud Storage over HTTP: uploads', () => {
  const scratch = new Scratch();
  let cloud: LocalCloud;
  before(async () => {
    cloud = await scratch.cloud({storage_only: true});
  });
  after(() => scratch.end());

  const http = new PlainHttp(() => cloud);
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
        const generation = given === 'one' ? String((await http.put(name, 'old')).json.generation) : '7';
        const answer = await http.put(name, 'new', `&${query.replace('GEN', generation)}`);
        assert.equal(answer.status, status);
        const now = await http.get(name);
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
        Array.from({length: 10}, (_, i) => http.put('race', `writer ${i}`, '&ifGenerationMatch=0')),
      );
      const winners = answers.flatMap(({status}, i) => (status === 200 ? [i] : []));
      assert.equal(winners.length, 1);
      assert.ok(answers.every(({status}) => status === 200 || status === 412));
      assert.equal((await http.get('race')).text, `writer ${winners[0]}`);
    });

    it('a read that has the newest already gets 304', async () => {
      const {generation} = (await http.put('known', 'x')).json;
      const path = `${objects}/known?ifGenerationNotMatch=${generation}`;
      assert.equal((await http.call('GET', path)).status, 304);
      assert.equal((await http.call('GET', `${objects}/known?ifGenerationMatch=1`)).status, 412);
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
        assert.equal((await http.put(`sum ${name}`, 'hello', '', headers)).status, status);
        assert.equal((await http.get(`sum ${name}`)).status, status === 200 ? 200 : 404);
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
          (await http.call('POST', `${uploads}?uploadType=multipart`, {method: 'POST', ...related(parts)}))
            .status,
          status,
        );
        const begun = await http.call(
          'POST',
          `${uploads}?uploadType=resumable&name=sum-resumable-${status}`,
          {
            body: JSON.stringify({crc32c: sum}),
          },
        );
        const location = (begun.headers.get('location') ?? '').replace(cloud.url, '');
        assert.equal((await http.call('PUT', location, {body: 'hello'})).status, status);
      }
    });

    it('that fail leave nothing on disk', async () => {
      await http.put('sum wrong', 'hello', '', {'x-goog-hash': 'crc32c=AAAAAA=='});
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
        const answer = await http.call(
          'POST',
          `${uploads}?uploadType=multipart`,
          related(parts, newline, 'bound=ary 1'),
        );
        assert.equal(answer.status, 200);
        assert.equal(answer.json.contentType, 'text/x');
        assert.equal((await http.get(`multi ${name}`)).text, bytes);
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
        const answer = await http.call('POST', `${uploads}?uploadType=multipart`, init);
        assert.equal(answer.status, 400, answer.text);
        assert.equal((await http.get('cut')).status, 404);
      });
    }
  });

  describe('resumable uploads', () => {
    const begin = async (name: string, query = '', headers: Record<string, string> = {}) => {
      const answer = await http.call('POST', `${uploads}?uploadType=resumable&name=${name}${query}`, {
        headers,
      });
      return (answer.headers.get('location') ?? '').replace(cloud.url, '');
    };
    const piece = (location: string, range: string, body?: string) =>
      http.call('PUT', location, {headers: {'content-range': `bytes ${range}`}, body: body ?? null});

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
      assert.equal((await http.get('steps')).text, 'abcdefgh');
      const repeated = await piece(location, '*/8');
      assert.deepEqual([repeated.status, repeated.json.generation], [200, last.json.generation]);
    });

    it('end where their length is said only at the end', async () => {
      const location = await begin('length');
      await piece(location, '0-3/*', 'abcd');
      assert.equal((await piece(location, '*/4')).status, 200);
      const empty = await begin('length-0');
      assert.equal((await piece(empty, '*/0')).status, 200);
      assert.equal((await http.get('length-0')).text, '');
    });

    it('are refused at their start and again at their end when the condition does not hold', async () => {
      const location = await begin('cond', '&ifGenerationMatch=0');
      await http.put('cond', 'someone else');
      assert.equal((await piece(location, '0-3/4', 'mine')).status, 412);
      assert.equal((await http.get('cond')).text, 'someone else');
      const late = await http.call('POST', `${uploads}?uploadType=resumable&name=cond&ifGenerationMatch=0`);
      assert.equal(late.status, 412);
    });

    it('can be cancelled, and are unknown afterwards', async () => {
      const location = await begin('cancelled');
      await piece(location, '0-3/*', 'abcd');
      assert.equal((await http.call('DELETE', location)).status, 499);
      assert.equal((await piece(location, '*/*')).status, 404);
      assert.deepEqual(
        readdirSync(join(cloud.dir, 'uploads')).filter(file => location.includes(file)),
        [],
      );
    });

    it('keep what arrived before the connection broke', async () => {
      const location = await begin('broken');
      const id = location.split('upload_id=')[1] ?? '';
      await new Promise<void>(done => {
        const socket = connect(cloud.port, '127.0.0.1', () => {
          socket.write(
            `PUT ${location} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Range: bytes 0-99/100\r\nContent-Length: 100\r\n\r\nabcdefgh`,
          );
          void until('they arrived', () => sizeOf(join(cloud.dir, 'uploads', id)) === 8).then(() =>
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

    it('end with 400 when they hold less than they announced', async () => {
      const location = await begin('short', '', {'x-upload-content-length': '10'});
      assert.equal((await piece(location, '0-*/*', 'four')).status, 400);
      assert.equal((await http.get('short')).status, 404);
    });

    for (const range of ['bytes', 'bytes 5', 'lines 0-1/2', 'bytes 0-1']) {
      it(`are a 400 with Content-Range "${range}"`, async () => {
        const location = await begin('odd');
        const answer = await http.call('PUT', location, {headers: {'content-range': range}, body: 'ab'});
        assert.equal(answer.status, 400);
      });
    }
  });
});
