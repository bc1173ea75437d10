import assert from 'node:assert/strict';
import {readdirSync} from 'node:fs';
import {join} from 'node:path';
import {useLocalCloud} from '../contract/local-cloud.ts';
import {tokenUrl} from '../support/machine/a-cloud.ts';
import {objects, PlainHttp, uploads} from './plain-http.ts';

describe('Cloud Storage over HTTP', () => {
  const cloud = useLocalCloud({storage_only: true});
  const http = new PlainHttp(cloud);
  const related = (parts: string[], newline = '\r\n', boundary = 'b') => ({
    body: `--${boundary}${newline}${parts.join(`${newline}--${boundary}${newline}`)}${newline}--${boundary}--${newline}`,
    headers: {'content-type': `multipart/related; boundary="${boundary}"`},
  });

  describe('under a precondition', () => {
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
      it(`answers ${status} to a write with ${query} where ${given === 'one' ? 'an object' : 'no object'} exists`, async () => {
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

    it('answers 304 to a client that has the newest generation', async () => {
      const {generation} = (await http.put('known', 'x')).json;
      const path = `${objects}/known?ifGenerationNotMatch=${generation}`;
      assert.equal((await http.call('GET', path)).status, 304);
      assert.equal((await http.call('GET', `${objects}/known?ifGenerationMatch=1`)).status, 412);
    });
  });

  describe('with checksums', () => {
    /** CRC-32C of "hello". */
    const crc = 'mnG7TA==';
    const cases: {name: string; headers: Record<string, string>; status: number}[] = [
      {name: 'the right crc32c', headers: {'x-goog-hash': `crc32c=${crc}`}, status: 200},
      {name: 'a wrong crc32c', headers: {'x-goog-hash': 'crc32c=AAAAAA=='}, status: 400},
      {
        name: 'the right crc32c and a wrong md5',
        headers: {'x-goog-hash': `crc32c=${crc},md5=${'A'.repeat(22)}==`},
        status: 400,
      },
      {name: 'a wrong content-md5', headers: {'content-md5': `${'A'.repeat(22)}==`}, status: 400},
    ];
    for (const {name, headers, status} of cases) {
      it(`answers ${status} to an upload with ${name}`, async () => {
        assert.equal((await http.put(`sum ${name}`, 'hello', '', headers)).status, status);
        assert.equal((await http.get(`sum ${name}`)).status, status === 200 ? 200 : 404);
      });
    }

    it('checks the sums in the metadata of a multipart upload and of a resumable upload', async () => {
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
          {body: JSON.stringify({crc32c: sum})},
        );
        const location = (begun.headers.get('location') ?? '').replace(tokenUrl(cloud()), '');
        assert.equal((await http.call('PUT', location, {body: 'hello'})).status, status);
      }
    });

    it('leaves no file on disk after a wrong sum', async () => {
      await http.put('sum wrong', 'hello', '', {'x-goog-hash': 'crc32c=AAAAAA=='});
      assert.deepEqual(
        readdirSync(join(cloud().dir, 'uploads')).filter(name => name.startsWith('draft-')),
        [],
      );
    });
  });

  describe('with multipart uploads', () => {
    const head = 'Content-Type: application/json; charset=UTF-8';
    const bytes = 'line\r\n--not the boundary\r\n\n--bb\n';
    for (const [name, newline] of [
      ['CRLF', '\r\n'],
      ['LF of Python', '\n'],
    ] as const) {
      it(`reads parts with line ends ${name} and keeps bytes that resemble a boundary`, async () => {
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
      'without its last boundary': {
        ...related([`${head}\r\n\r\n{"name":"cut"}`, 'Content-Type: a/b\r\n\r\nbytes']),
        body: `--b\r\n${head}\r\n\r\n{"name":"cut"}\r\n--b\r\nContent-Type: a/b\r\n\r\nbytes`,
      },
      'with metadata that is not JSON': related([`${head}\r\n\r\n{oops`, 'Content-Type: a/b\r\n\r\nbytes']),
      'with a list as metadata': related([`${head}\r\n\r\n[]`, 'Content-Type: a/b\r\n\r\nbytes']),
      'with a number among the custom metadata': related([
        `${head}\r\n\r\n{"name":"cut","metadata":{"n":1}}`,
        'Content-Type: a/b\r\n\r\nbytes',
      ]),
      'with one part': related([`${head}\r\n\r\n{"name":"cut"}`]),
      'with a line break in a field': related([
        `${head}\r\n\r\n{"name":"cut","contentType":"a\\r\\nX-Evil: 1"}`,
        'Content-Type: a/b\r\n\r\nbytes',
      ]),
    })) {
      it(`answers 400 to an upload ${name} and stores nothing`, async () => {
        const answer = await http.call('POST', `${uploads}?uploadType=multipart`, init);
        assert.equal(answer.status, 400, answer.text);
        assert.equal((await http.get('cut')).status, 404);
      });
    }
  });
});
