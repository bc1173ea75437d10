import assert from 'node:assert/strict';
import {once} from 'node:events';
import {createServer, type IncomingMessage, type Server} from 'node:http';
import type {AddressInfo} from 'node:net';
import {openPing} from '../../shared/google/ping.ts';

describe('the ping of worker-api', () => {
  let server: Server;
  let url: string;
  let status = 200;
  const asked: {headers: IncomingMessage['headers']; body: unknown}[] = [];

  before(async () => {
    server = createServer((request, response) => {
      let text = '';
      request.on('data', chunk => (text += chunk));
      request.on('end', () => {
        asked.push({headers: request.headers, body: JSON.parse(text)});
        response.writeHead(status).end('no right to call this');
      });
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/worker-api`;
  });

  after(() => server.close());

  it('the ping calls worker-api as a worker does, with the token of the local cloud', async () => {
    await openPing({worker_api: url, token: 'secret'})();
    const [{headers, body}] = asked.splice(0) as [(typeof asked)[0]];
    assert.deepEqual(body, {action: 'ping'});
    assert.deepEqual([headers.authorization, headers['content-type']], ['Bearer secret', 'application/json']);
  });

  it('the ping fails with the status and the text of the answer', async () => {
    status = 403;
    await assert.rejects(openPing({worker_api: url})(), /answered 403: no right to call this/);
  });

  it('the ping fails with the address when there is no answer', async () => {
    await assert.rejects(
      openPing({worker_api: 'http://127.0.0.1:1/'})(),
      /Failed to call http:\/\/127.0.0.1:1\//,
    );
  });
});
