import assert from 'node:assert/strict';
import {execFile} from 'node:child_process';
import {fileURLToPath} from 'node:url';
import {promisify} from 'node:util';
import {Folder} from '../../support/machine/folder.ts';

const ROOT = fileURLToPath(new URL('../../../', import.meta.url));
/** No server listens on this port. */
const NOWHERE = 'http://127.0.0.1:9';

const CALL = `
  import {createServer} from 'node:http';
  import {getFunction} from '@google-cloud/functions-framework/testing';
  const refusing = createServer((_, response) => response.writeHead(403).end('not yours'));
  await new Promise(resolve => refusing.listen(0, '127.0.0.1', resolve));
  process.env.GLEANER_STORAGE_ENDPOINT = 'http://127.0.0.1:' + refusing.address().port;
  await import('./functions/index.ts');
  const data = {message: {messageId: '77', publishTime: '2026-01-02T03:04:05.000Z', data: Buffer.from('{"action":"stop","run":"my-run"}').toString('base64')}};
  await getFunction('on-control')({id: '77', data}).then(
    () => process.exit(0),
    () => process.exit(42),
  );
`;

describe('an event that fails and will come again @full', () => {
  const folder = new Folder(after);

  it('is logged in the shape of Cloud Logging before it leaves @full', async () => {
    // Another test of this process may have pointed Google's clients at a local cloud.
    const {STORAGE_EMULATOR_HOST: _, ...inherited} = process.env;
    const env = {
      ...inherited,
      GLEANER_PROJECT: 'my-project',
      GLEANER_BUCKET: 'my-bucket',
      GLEANER_WORKER_API: `${NOWHERE}/worker-api`,
      GLEANER_BUNDLE: 'c'.repeat(64),
      GLEANER_STORE: `sqlite:${folder.at('store.sqlite')}`,
      GLEANER_TPU_ENDPOINT: NOWHERE,
      GLEANER_BILLING_ENDPOINT: NOWHERE,
      PUBSUB_EMULATOR_HOST: '127.0.0.1:9',
    };
    const args = ['--input-type=module', '--eval', CALL];
    const failed = await promisify(execFile)(process.execPath, args, {cwd: ROOT, env}).then(
      () => assert.fail('it went well'),
      (error: {code: number; stdout: string; stderr: string}) => error,
    );
    assert.equal(failed.code, 42, failed.stderr);
    const entry = JSON.parse(failed.stdout.trim().split('\n').at(-1) ?? '');
    assert.equal(entry.severity, 'ERROR');
    assert.match(entry.message, /not yours[\s\S]*\n +at /);
    const labels = {function: 'on-control', message_id: '77'};
    assert.deepEqual(entry['logging.googleapis.com/labels'], labels);
  });
});
