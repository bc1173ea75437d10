/** The adapter of the receiver of notifications, against a server on this machine. */
import assert from 'node:assert/strict';
import {Undelivered} from '../../shared/contracts/errors.ts';
import {signedHeaders} from '../../shared/contracts/settings/webhook.ts';
import {openWebhook} from '../../shared/google/webhook.ts';
import {WebhookServer} from '../support/fakes/webhook-server.ts';

const NOW = Date.parse('2026-11-26T12:00:00.000Z');
const KEY = 'a-key-of-24-or-more-letters';
const BODY = '{"type":"run.completed"}';
const PATH = '/services/a-secret?token=a-secret';

describe('the receiver of notifications', () => {
  let server: WebhookServer;
  before(async () => {
    server = await WebhookServer.start();
  });
  beforeEach(() => {
    server.asked.length = 0;
  });
  after(() => server.close());

  const post = (to = server.origin) =>
    openWebhook({url: to + PATH, key: KEY, now: () => NOW}).post('id-1', BODY);

  /** The error has the host alone. */
  async function failed(to?: string): Promise<Undelivered> {
    const error = await post(to).then(
      () => assert.fail('it was delivered'),
      (error: unknown) => error,
    );
    assert.ok(error instanceof Undelivered);
    assert.doesNotMatch(error.message, /a-secret|services/);
    return error;
  }

  it('gets one signed POST', async () => {
    server.answer = response => response.writeHead(204).end();
    await post();
    const [{method, headers, body} = assert.fail('nothing was asked')] = server.asked;
    assert.deepEqual([method, headers['content-type'], body], ['POST', 'application/json', BODY]);
    for (const [name, value] of Object.entries(signedHeaders('id-1', BODY, KEY, NOW)))
      assert.equal(headers[name], value);
  });

  it('names why it refuses, as a line without control characters', async () => {
    server.answer = response => response.writeHead(404).end(`no_service\n\u001b[31m${'x'.repeat(10_000)}`);
    const {message, refused} = await failed();
    assert.match(message, /^127\.0\.0\.1:\d+ answered 404: no_service \ufffd\[31mx{1,200}$/);
    assert.equal(refused, true);
  });

  for (const status of [408, 429, 500, 503])
    it(`is away when it answers ${status}`, async () => {
      server.answer = response => response.writeHead(status).end();
      assert.equal((await failed()).refused, false);
    });

  it('cannot redirect the POST', async () => {
    server.answer = response => response.writeHead(307, {location: server.origin}).end();
    assert.match((await failed()).message, /answered 307: a redirect is not followed/);
    assert.equal(server.asked.length, 1);
  });

  it('that breaks off or does not listen is away', async () => {
    server.answer = response => response.destroy();
    assert.match((await failed()).message, /does not answer: /);
    const closed = await WebhookServer.start();
    const {origin} = closed;
    await closed.close();
    const {message} = await failed(origin);
    assert.match(message, /does not answer: ECONNREFUSED/);
  });

  it('that answers without an end is not waited for', async () => {
    server.answer = response => {
      response.writeHead(200);
      response.write('x'.repeat(1000));
    };
    await post();
  });
});
