/** The adapter of the receiver of notifications, against a server on this machine. */
import assert from 'node:assert/strict';
import {once} from 'node:events';
import {createServer, type IncomingMessage, type Server, type ServerResponse} from 'node:http';
import type {AddressInfo} from 'node:net';
import {Undelivered} from '../../shared/contracts/errors.ts';
import {signedHeaders} from '../../shared/contracts/webhook.ts';
import {openWebhook} from '../../shared/google/webhook.ts';

const NOW = Date.parse('2026-11-26T12:00:00.000Z');
const KEY = 'a-key-of-24-or-more-letters';
const BODY = '{"type":"run.completed"}';

describe('the receiver of notifications', () => {
  let server: Server;
  let url: string;
  let answer: (response: ServerResponse) => void;
  const asked: {request: IncomingMessage; body: string}[] = [];

  before(async () => {
    server = createServer(async (request, response) => {
      const chunks: Buffer[] = [];
      for await (const chunk of request) chunks.push(chunk);
      asked.push({request, body: Buffer.concat(chunks).toString()});
      answer(response);
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/services/a-secret?token=a-secret`;
  });

  beforeEach(() => {
    asked.length = 0;
  });
  after(() => {
    server.closeAllConnections();
    server.close();
  });

  const post = (to = url) => openWebhook({url: to, key: KEY, now: () => NOW}).post('id-1', BODY);

  /** The error has the host alone. */
  async function failed(to = url): Promise<Undelivered> {
    const error = await post(to).then(
      () => assert.fail('it was delivered'),
      (error: unknown) => error,
    );
    assert.ok(error instanceof Undelivered);
    assert.doesNotMatch(error.message, /a-secret|services/);
    return error;
  }

  it('gets one signed POST', async () => {
    answer = response => response.writeHead(204).end();
    await post();
    const [{request, body} = assert.fail('nothing was asked')] = asked;
    assert.deepEqual(
      [request.method, request.headers['content-type'], body],
      ['POST', 'application/json', BODY],
    );
    for (const [name, value] of Object.entries(signedHeaders('id-1', BODY, KEY, NOW)))
      assert.equal(request.headers[name], value);
  });

  it('names why it refuses, as a line without control characters', async () => {
    answer = response => response.writeHead(404).end(`no_service\n\u001b[31m${'x'.repeat(10_000)}`);
    const {message, refused} = await failed();
    assert.match(message, /^127\.0\.0\.1:\d+ answered 404: no_service \ufffd\[31mx{1,200}$/);
    assert.equal(refused, true);
  });

  for (const status of [408, 429, 500, 503])
    it(`is away when it answers ${status}`, async () => {
      answer = response => response.writeHead(status).end();
      assert.equal((await failed()).refused, false);
    });

  it('cannot redirect the POST', async () => {
    answer = response => response.writeHead(307, {location: url}).end();
    assert.match((await failed()).message, /answered 307: a redirect is not followed/);
    assert.equal(asked.length, 1);
  });

  it('that breaks off or does not listen is away', async () => {
    answer = response => response.destroy();
    assert.match((await failed()).message, /does not answer: /);
    const closed = createServer().listen(0, '127.0.0.1');
    await once(closed, 'listening');
    const {port} = closed.address() as AddressInfo;
    await new Promise(done => closed.close(done));
    const {message} = await failed(`http://127.0.0.1:${port}/services/a-secret`);
    assert.match(message, /does not answer: ECONNREFUSED/);
  });

  it('that answers without an end is not waited for', async () => {
    answer = response => {
      response.writeHead(200);
      response.write('x'.repeat(1000));
    };
    await post();
  });
});
