import assert from 'node:assert/strict';
import {accountsOf} from '../../emulator/http/identity.ts';
import {claimsOf, WRONG_CLAIMS, WRONG_SIGNATURES} from '../support/fakes/tokens.ts';
import {from, SECRETS, TwoWorkers, VICTIM} from './two-workers.ts';

const secret = SECRETS.victim;
const beat = {action: 'heartbeat', ...from(VICTIM.name, 2), phase: 'running', lease: null, progress: null};

describe('worker-api at its local address, with the secret of a worker', () => {
  const world = new TwoWorkers();
  before(() => world.start());
  beforeEach(() => world.reset());
  after(() => world.scratch.end());

  for (const {name, status, token} of [...WRONG_CLAIMS, ...WRONG_SIGNATURES])
    it(`refuses a token ${name}, in front of the function and in it`, async () => {
      const before = world.documents();
      const claims = claimsOf(accountsOf(world.cloud.project, 'gleaner').worker, world.url);
      const authorization = `Bearer ${token(claims, given => world.identities.sign(given))}`;
      const inFront = await world.ask(beat, {secret, authorization});
      assert.equal(inFront.status, status);
      assert.match(inFront.text, status === 401 ? /without the token of the local cloud/ : /may not invoke/);
      // With its key the owner of the cloud passes IAM.
      const headers = {'x-goog-api-key': world.cloud.token};
      const within = await world.ask(beat, {secret, authorization, headers});
      assert.equal(within.status, status);
      assert.match(within.text, /identity token/);
      assert.deepEqual(world.documents(), before);
    });

  it('refuses a request without a token', async () => {
    assert.equal((await world.ask(beat, {secret, authorization: ''})).status, 401);
  });

  it('refuses a second token in X-Serverless-Authorization', async () => {
    const headers = {'x-serverless-authorization': 'Bearer x'};
    const {status, text} = await world.ask(beat, {secret, headers});
    assert.equal(status, 401);
    assert.match(text, /send the identity token in the header authorization/);
  });

  it('lets on-tick ping and do nothing else, and lets no worker ping', async () => {
    const control = claimsOf(accountsOf(world.cloud.project, 'gleaner').control, world.url);
    const authorization = `Bearer ${world.identities.sign(control)}`;
    assert.equal((await world.ask({action: 'ping'}, {authorization})).status, 200);
    assert.equal((await world.ask(beat, {authorization, secret})).status, 403);
    assert.equal((await world.ask({action: 'ping'}, {secret})).status, 403);
  });

  it('refuses what is not JSON, and more than 2 MiB', async () => {
    const text = {'content-type': 'text/plain'};
    assert.equal((await world.ask(beat, {secret, headers: text})).status, 415);
    assert.equal((await world.ask({...beat, more: 'x'.repeat(2 * 1024 * 1024)}, {secret})).status, 413);
  });
});
