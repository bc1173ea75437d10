import assert from 'node:assert/strict';
import {execFile} from 'node:child_process';
import {fileURLToPath} from 'node:url';
import {promisify} from 'node:util';

const ROOT = fileURLToPath(new URL('../../../', import.meta.url));

/** Serves worker-api as Cloud Run does, without its settings, and prints the status of each request. */
const SERVE = `
  import {request} from 'node:http';
  import {getTestServer} from '@google-cloud/functions-framework/testing';
  await import('./functions/index.ts');
  const server = getTestServer('worker-api');
  await new Promise(resolve => server.listen(0, '127.0.0.1', resolve));
  const parse = JSON.parse;
  let most = 0;
  JSON.parse = (text, ...rest) => (most = Math.max(most, text.length), parse(text, ...rest));
  const post = headers => new Promise(resolve => {
    const options = {host: '127.0.0.1', port: server.address().port, method: 'POST', headers: {'content-type': 'application/json', ...headers}};
    const asking = request(options, response => resolve(response.resume().statusCode));
    asking.on('error', error => resolve(error.code));
    asking.end('{"text": "' + 'x'.repeat(300000) + '"}');
  });
  console.log(JSON.stringify([await post({'content-length': 300012}), await post({'transfer-encoding': 'chunked'}), most < 300000]));
  process.exit(0);
`;

describe('a request to worker-api of more than 256 KiB', () => {
  it('is refused before the framework parses it, also without a length @full', async () => {
    const env = {...process.env, FUNCTION_TARGET: 'worker-api'};
    const args = ['--input-type=module', '--eval', SERVE];
    const {stdout} = await promisify(execFile)(process.execPath, args, {cwd: ROOT, env});
    const [stated, chunked, isUnparsed] = JSON.parse(stdout.trim().split('\n').at(-1) ?? '');
    assert.equal(stated, 413);
    assert.ok([413, 'ECONNRESET', 'EPIPE'].includes(chunked), String(chunked));
    assert.equal(isUnparsed, true);
  });
});
