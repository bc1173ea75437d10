import assert from 'node:assert/strict';
import {createServer, type IncomingMessage, type Server} from 'node:http';
import {sendPing} from '../../shared/google/ping.ts';
import {listen} from '../support/machine/listen.ts';

describe('the ping of worker-api', () => {
  let server: Server;
  let host: string;
  let url: string;
  let status = 200;
  const asked: {path: string; headers: IncomingMessage['headers']; body: string}[] = [];

  before(async () => {
    server = createServer((request, response) => {
      let body = '';
      request.on('data', chunk => (body += chunk));
      request.on('end', () => {
        const path = request.url ?? '';
        asked.push({path, headers: request.headers, body});
        if (path.startsWith('/metadata')) response.end('an.identity.token\n');
        else response.writeHead(status).end('no right to call this');
      });
    });
    host = await listen(server);
    url = `http://${host}/worker-api`;
  });

  beforeEach(() => {
    asked.length = 0;
    status = 200;
  });
  after(() => server.close());

  it('calls worker-api with an identity token for its address from the metadata server', async () => {
    await sendPing({worker_api: url, metadata_host: `${host}/metadata`});
    const [token, ping] = asked;
    const query = `audience=${encodeURIComponent(url)}&format=full`;
    const identity = '/metadata/computeMetadata/v1/instance/service-accounts/default/identity';
    assert.deepEqual([token?.path, token?.headers['metadata-flavor']], [`${identity}?${query}`, 'Google']);
    assert.deepEqual(JSON.parse(ping?.body ?? ''), {action: 'ping'});
    assert.deepEqual(
      [ping?.headers.authorization, ping?.headers['content-type']],
      ['Bearer an.identity.token', 'application/json'],
    );
  });

  it('fails with the status and the text of the answer', async () => {
    status = 403;
    const ping = () => sendPing({worker_api: url, metadata_host: `${host}/metadata`});
    await assert.rejects(ping(), /answered 403: no right to call this/);
  });

  it('fails with the address when there is no answer', async () => {
    const ping = () => sendPing({worker_api: 'http://127.0.0.1:1/', metadata_host: `${host}/metadata`});
    await assert.rejects(ping(), /Failed to call http:\/\/127.0.0.1:1\//);
  });

  it('names the metadata server when it gives no token', async () => {
    status = 404;
    await assert.rejects(
      sendPing({worker_api: url, metadata_host: host}),
      /Failed to get an identity token: the metadata server answered 404/,
    );
    await assert.rejects(
      sendPing({worker_api: url, metadata_host: '127.0.0.1:1'}),
      /Failed to get an identity token from the metadata server/,
    );
  });
});
