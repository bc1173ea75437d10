import assert from 'node:assert/strict';
import {type ChildProcess, fork} from 'node:child_process';
import {once} from 'node:events';
import {join} from 'node:path';
import {fileURLToPath} from 'node:url';
import {HOST_HEADER} from '../../emulator/http/guard.ts';
import {functionsModule, readLines, Scratch} from '../support/machine/a-cloud.ts';

describe('The port of a function', () => {
  const scratch = new Scratch(after);
  let host: ChildProcess;
  let port: number;
  let file: string;
  before(async () => {
    file = join(scratch.dir(), 'seen.jsonl');
    const entry = fileURLToPath(new URL('../../emulator/functions/function-host.ts', import.meta.url));
    const env = {...process.env, SEEN: file, GLEANER_LOCAL_TOKEN: 'secret'};
    host = fork(entry, [functionsModule, 'on-control'], {env, stdio: ['ignore', 'ignore', 'inherit', 'ipc']});
    const [{ports}] = (await once(host, 'message')) as [{ports: Record<string, number>}];
    port = ports['on-control'] ?? 0;
  });
  after(() => host.kill('SIGKILL'));

  const data = Buffer.from('{"action":"scale"}').toString('base64');
  const form = {'content-type': 'application/x-www-form-urlencoded'};
  const event = {
    'content-type': 'application/json',
    ...{'ce-specversion': '1.0', 'ce-id': '1', 'ce-type': 'x', 'ce-source': 'x'},
  };
  const path = '/projects/gleaner-local/topics/control';
  it('refuses forms and events without the token of the cloud', async () => {
    const body = `message[data]=${encodeURIComponent(data)}`;
    for (const headers of [form, {...form, [HOST_HEADER]: 'guess'}, {...form, [HOST_HEADER]: ''}])
      assert.equal(
        (await fetch(`http://127.0.0.1:${port}${path}`, {method: 'POST', headers, body})).status,
        401,
      );
    const json = JSON.stringify({message: {data}});
    const init = {method: 'POST', headers: event, body: json};
    assert.equal((await fetch(`http://127.0.0.1:${port}/`, init)).status, 401);
    const page = {...event, [HOST_HEADER]: 'secret', origin: 'https://evil.example'};
    assert.equal((await fetch(`http://127.0.0.1:${port}/`, {...init, headers: page})).status, 403);
    assert.deepEqual(readLines(file), []);
    const own = {...event, [HOST_HEADER]: 'secret'};
    assert.equal((await fetch(`http://127.0.0.1:${port}/`, {...init, headers: own})).status, 204);
    assert.equal(readLines(file).length, 1);
  });

  it('answers 500 to the one request whose function throws in a timer or rejects a promise that nobody awaits', async () => {
    const headers = {'content-type': 'application/json', [HOST_HEADER]: 'secret'};
    const push = (action: string) => {
      const message = {data: Buffer.from(JSON.stringify({action})).toString('base64'), messageId: action};
      const body = JSON.stringify({message, subscription: 's'});
      return fetch(`http://127.0.0.1:${port}${path}`, {method: 'POST', headers, body});
    };
    const answers = await Promise.all(['throw later', 'scale', 'reject later'].map(push));
    const failed = (status: number, text: string) => status === 500 && text.includes('failed later');
    const found = answers.map(async answer => failed(answer.status, await answer.text()));
    assert.deepEqual(await Promise.all(found), [true, false, true]);
    assert.equal(answers[1]?.status, 204);
  });
});
