/** The adapter of Secret Manager: the text of a secret, or why it cannot be read, and never a part of it. */
import assert from 'node:assert/strict';
import {createServer, type Server} from 'node:http';
import {ServiceError} from '../../../shared/contracts/errors.ts';
import {openSecrets} from '../../../shared/google/secrets.ts';
import {listen} from '../../support/machine/listen.ts';

const NAME = 'projects/p/secrets/s';
const MEMBER = 'serviceAccount:gleaner-worker-api@p.iam.gserviceaccount.com';
/** A text with a known CRC-32C. */
const payload = (data: string, dataCrc32c: string) => ({payload: {data: btoa(data), dataCrc32c}});

describe('a secret of Secret Manager', () => {
  let server: Server;
  let asked: (string | undefined)[] = [];
  let answer: {status: number; body?: object | undefined};
  let read: (name: string) => Promise<{text: string} | {problem: string}>;
  before(async () => {
    server = createServer((request, response) => {
      const isToken = request.url?.endsWith('/token');
      if (!isToken) asked = [request.url, request.headers.authorization];
      const {status, body} = isToken
        ? {status: 200, body: {access_token: 'the-token', expires_in: 60}}
        : answer;
      response.writeHead(status, {location: '/elsewhere'}).end(JSON.stringify(body));
    });
    const metadata_host = await listen(server);
    const endpoint = `http://${metadata_host}`;
    const secrets = openSecrets({metadata_host, account: 'default', member: MEMBER, endpoint});
    read = name => secrets.read(name, 'job_secrets');
  });
  after(() => server.close());

  it('is read with the token of this process, by default in its newest version', async () => {
    answer = {status: 200, body: payload('123456789', '3808858755')};
    assert.deepEqual(await read(NAME), {text: '123456789'});
    assert.deepEqual(asked, [`/v1/${NAME}/versions/latest:access`, 'Bearer the-token']);
    await read(`${NAME}/versions/7`);
    assert.equal(asked[0], `/v1/${NAME}/versions/7:access`);
  });

  const grant = `gcloud secrets add-iam-policy-binding s --project=p --member=${MEMBER} --role=roles/secretmanager.secretAccessor`;
  for (const [status, says, body = {}] of [
    [403, grant],
    [401, grant],
    [404, 'there is no such secret or version; create it, or correct job_secrets'],
    [400, 'that version is disabled or destroyed; add a new one'],
    [200, 'it is no UTF-8 text without zero bytes; add a version that is one', payload('\xff', '4278190080')],
  ] as [number, string, object?][])
    it(`answered with ${status} may have a problem that says what to do`, async () => {
      answer = {status, body};
      assert.deepEqual(await read(NAME), {
        problem: `worker-api may not read ${NAME}/versions/latest: ${says}`,
      });
    });

  for (const [name, status, body] of [
    ['an overloaded service', 503],
    ['a redirect', 302],
    ['a wrong checksum', 200, payload('123456789', '1')],
  ] as [string, number, object?][])
    it(`is asked for again after ${name}, and the error shows neither the token nor the text`, async () => {
      answer = {status, body};
      const failed = await read(NAME).catch((error: Error) => error);
      assert.ok(failed instanceof ServiceError && failed.cause === undefined);
      assert.match(failed.message, /^Failed to read the secret projects\/p\/.*latest: .*; try again later$/);
      assert.doesNotMatch(failed.message, /the-token|123456789/);
    });
});
