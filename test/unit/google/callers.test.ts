import assert from 'node:assert/strict';
import {createServer, type Server} from 'node:http';
import {Identities} from '../../../emulator/http/identity.ts';
import {CallerRefused} from '../../../shared/contracts/errors.ts';
import {type Config, ConfigError} from '../../../shared/contracts/settings/config.ts';
import {openCallers} from '../../../shared/google/callers.ts';
import {
  type Claims,
  claimsOf,
  WRONG_CLAIMS,
  WRONG_SIGNATURES,
  withoutSignature,
} from '../../support/fakes/tokens.ts';
import {Folder} from '../../support/machine/folder.ts';
import {listen} from '../../support/machine/listen.ts';
import {aConfig, ENVIRONMENT} from '../../world/builders.ts';

const AUDIENCE = ENVIRONMENT.GLEANER_WORKER_API;
const WORKER = ENVIRONMENT.GLEANER_WORKER_SERVICE_ACCOUNT;
const CONTROL = ENVIRONMENT.GLEANER_CONTROL_SERVICE_ACCOUNT;
/** No server listens on this port. */
const NOWHERE = 'http://127.0.0.1:9/certs';

function accountOf(set: Record<string, string>) {
  const {worker_api, identity}: Config = aConfig(set);
  return openCallers({worker_api, identity});
}

describe('the accounts of callers', () => {
  const folder = new Folder(after);
  let identities: Identities;
  let server: Server;
  let certs: string;
  let asked = 0;

  before(async () => {
    identities = new Identities(folder.path);
    const [, , answer] = identities.routes()[0] ?? assert.fail();
    server = createServer(async (_request, response) => {
      asked += 1;
      const {json, headers} = await answer({} as Parameters<typeof answer>[0]);
      response.writeHead(200, {...headers, 'content-type': 'application/json'}).end(JSON.stringify(json));
    });
    certs = `http://${await listen(server)}/certs`;
  });
  after(() => server.close());

  const signed = (claims: Claims) => identities.sign(claims);
  const refusedWith = (status: number) => (error: unknown) =>
    error instanceof CallerRefused && error.status === status;

  describe('outside Cloud Run', () => {
    it('are those of signed tokens of the two accounts', async () => {
      const account = accountOf({GLEANER_OIDC_CERTS: certs});
      assert.equal(await account(`Bearer ${signed(claimsOf(WORKER, AUDIENCE))}`), 'worker');
      assert.equal(await account(`bearer ${signed(claimsOf(CONTROL, AUDIENCE))}`), 'control');
      assert.equal(asked, 1, 'the certificates are kept');
    });

    for (const {name, status, token} of [...WRONG_CLAIMS, ...WRONG_SIGNATURES])
      it(`are not proved by a token ${name}`, async () => {
        const account = accountOf({GLEANER_OIDC_CERTS: certs});
        const given = token(claimsOf(WORKER, AUDIENCE), signed);
        await assert.rejects(account(`Bearer ${given}`), refusedWith(status));
      });

    it('are not proved without a token', async () => {
      const account = accountOf({GLEANER_OIDC_CERTS: certs});
      for (const header of [undefined, '', 'Bearer ', 'Basic eDp5', signed(claimsOf(WORKER, AUDIENCE))])
        await assert.rejects(account(header), refusedWith(401));
    });

    it('are unknown while the certificates cannot be read, which is no fault of the caller', async () => {
      const account = accountOf({GLEANER_OIDC_CERTS: NOWHERE});
      const header = `Bearer ${signed(claimsOf(WORKER, AUDIENCE))}`;
      await assert.rejects(account(header), error => !(error instanceof CallerRefused));
    });
  });

  describe('on Cloud Run', () => {
    const behindIam = {K_SERVICE: 'gleaner-worker-api', GLEANER_OIDC_CERTS: NOWHERE};
    const bare = (claims: Claims) => withoutSignature(signed(claims));

    it('are those of tokens whose signature Google has checked and removed', async () => {
      const account = accountOf(behindIam);
      assert.equal(await account(`Bearer ${bare(claimsOf(WORKER, AUDIENCE))}`), 'worker');
      assert.equal(await account(`Bearer ${bare(claimsOf(CONTROL, AUDIENCE))}`), 'control');
    });

    it('need a signature that is checked here while K_SERVICE is empty', async () => {
      const account = accountOf({K_SERVICE: '', GLEANER_OIDC_CERTS: certs});
      await assert.rejects(account(`Bearer ${bare(claimsOf(WORKER, AUDIENCE))}`), refusedWith(401));
    });

    const refusals = [
      {
        name: 'another account with both expected accounts and their variables',
        claims: {email: 'x@y.iam.gserviceaccount.com'},
        says: [
          'x@y.iam',
          WORKER,
          CONTROL,
          'GLEANER_WORKER_SERVICE_ACCOUNT',
          'GLEANER_CONTROL_SERVICE_ACCOUNT',
        ],
      },
      {
        name: 'another audience with the expected audience and its variable',
        claims: {aud: 'https://x/'},
        says: ['https://x/', AUDIENCE, 'GLEANER_WORKER_API'],
      },
      {
        name: 'a hostile audience in printable characters',
        claims: {aud: `\u202e${'x'.repeat(5000)}`},
        says: ['"\ufffdxxx'],
      },
    ];
    for (const {name, claims, says} of refusals)
      it(`are refused with a reason that names ${name}`, async () => {
        const token = bare({...claimsOf(WORKER, AUDIENCE), ...claims});
        await assert.rejects(accountOf(behindIam)(`Bearer ${token}`), (error: Error) => {
          for (const text of says) assert.ok(error.message.includes(text), `${error.message}: ${text}`);
          assert.ok(error.message.length < 700, error.message);
          return true;
        });
      });

    for (const {name, status, token} of WRONG_CLAIMS)
      it(`are not proved by a token ${name}, although its signature was removed`, async () => {
        const given = token(claimsOf(WORKER, AUDIENCE), bare);
        await assert.rejects(accountOf(behindIam)(`Bearer ${given}`), refusedWith(status));
      });

    for (const {name, status, token} of WRONG_SIGNATURES.filter(
      each => each.name !== 'without its signature',
    ))
      it(`are not proved by a token ${name}`, async () => {
        const account = accountOf({...behindIam, GLEANER_OIDC_CERTS: certs});
        const given = token(claimsOf(WORKER, AUDIENCE), signed);
        await assert.rejects(account(`Bearer ${given}`), refusedWith(status));
      });
  });

  it('cannot be checked without the names of the accounts and the key of the tickets', async () => {
    const {worker_api, identity} = aConfig();
    const missing = {
      ...identity,
      worker_account: undefined,
      control_account: undefined,
      ticket_key: undefined,
    };
    await assert.rejects(openCallers({worker_api, identity: missing})(undefined), error => {
      assert.ok(error instanceof ConfigError);
      assert.match(error.message, /^Failed to start worker-api\. Set these variables:\n/);
      for (const name of ['WORKER_SERVICE_ACCOUNT', 'CONTROL_SERVICE_ACCOUNT', 'TICKET_KEY'])
        assert.ok(error.message.includes(`  GLEANER_${name}: `), name);
      return true;
    });
  });
});
