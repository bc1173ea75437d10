import assert from 'node:assert/strict';
import {createServer, type Server} from 'node:http';
import type {AddressInfo} from 'node:net';
import {runningCloud} from '../../../cli/cloud/connect.ts';
import {Scratch} from '../../emulator/a-cloud.ts';

describe('A gleaner command', () => {
  const scratch = new Scratch();
  let server: Server;
  let port: number;
  let answer: (url: string) => Promise<string>;
  before(async () => {
    server = createServer(async (request, response) => response.end(await answer(request.url ?? '')));
    await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
    ({port} = server.address() as AddressInfo);
  });
  after(async () => {
    server.close();
    await scratch.end();
  });

  it('finds the token of a local cloud that proves to know the token', async () => {
    const cloud = await scratch.cloud();
    assert.equal((await runningCloud({port: cloud.port})).token, cloud.token);
  });

  it('sends no token to a server that only names the folder of a local cloud', async () => {
    const {dir} = await scratch.cloud();
    answer = async () => JSON.stringify({dir, url: `http://127.0.0.1:${port}`});
    await assert.rejects(runningCloud({port}), {
      name: 'CliError',
      message: /does not know the token in .*: end that server, or name another --port$/,
    });
  });

  it('sends no token to a server that forwards the proof of a local cloud', async () => {
    const cloud = await scratch.cloud();
    answer = async path => (await fetch(`${cloud.url}${path}`)).text();
    await assert.rejects(runningCloud({port}), /does not know the token/);
  });
});
