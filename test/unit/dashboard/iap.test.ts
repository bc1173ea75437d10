import assert from 'node:assert/strict';
import {once} from 'node:events';
import {createServer, type Server} from 'node:http';
import type {AddressInfo} from 'node:net';
import {openIapCheck} from '../../../dashboard/iap.ts';
import {ConfigError} from '../../../shared/contracts/config.ts';
import {CallerRefused} from '../../../shared/contracts/errors.ts';
import {aConfig} from '../../support/builders.ts';
import {AUDIENCE, FORGED_HEADERS, IAP_KEYS, iapClaims, iapHeader} from '../../support/iap.ts';

describe('the header of Identity-Aware Proxy', () => {
  let server: Server;
  let address: string;
  let asked = 0;
  before(async () => {
    server = createServer((_request, response) => {
      asked += 1;
      response.writeHead(200, {'content-type': 'application/json'}).end(JSON.stringify(IAP_KEYS));
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    address = `http://127.0.0.1:${(server.address() as AddressInfo).port}/keys`;
  });
  after(() => server.close());

  const checkWith = (set: Record<string, string>, now?: () => number) =>
    openIapCheck(aConfig({GLEANER_IAP_AUDIENCE: AUDIENCE, ...set}).identity, now);
  const isRefused = (error: unknown) => error instanceof CallerRefused && error.status === 401;

  it('proves a reader, also with a clock half a minute away', async () => {
    const check = checkWith({GLEANER_IAP_KEYS: address});
    await check(iapHeader());
    const now_s = Date.now() / 1000;
    await check(iapHeader(iapClaims({iat: now_s + 20})));
    await check(iapHeader(iapClaims({exp: now_s - 20})));
  });

  for (const {name, header} of FORGED_HEADERS)
    it(`is refused when it is ${name}`, async () => {
      await assert.rejects(checkWith({GLEANER_IAP_KEYS: address})(header()), isRefused);
    });

  it('is refused when it is missing', async () => {
    for (const header of [undefined, ''])
      await assert.rejects(checkWith({GLEANER_IAP_KEYS: address})(header), isRefused);
  });

  it('asks for the keys once an hour, and for those of an unknown key once a minute', async () => {
    let now_ms = Date.now();
    const check = checkWith({GLEANER_IAP_KEYS: address}, () => now_ms);
    const unknown = FORGED_HEADERS.find(({name}) => name.includes('does not have')) ?? assert.fail();
    const asks = async (header: string) => {
      const before = asked;
      await check(header).catch(() => {});
      return asked - before;
    };
    const claims = (): ReturnType<typeof iapClaims> => iapClaims({exp: now_ms / 1000 + 600});
    assert.equal(await asks(iapHeader()), 1);
    assert.deepEqual([await asks(iapHeader()), await asks(unknown.header())], [0, 0]);
    now_ms += 61_000;
    assert.deepEqual([await asks(unknown.header()), await asks(unknown.header())], [1, 0]);
    now_ms += 3_600_000;
    assert.equal(await asks(iapHeader(claims())), 1);
  });

  it('is unknown while the keys cannot be read, which is no fault of the reader', async () => {
    const check = checkWith({GLEANER_IAP_KEYS: 'http://127.0.0.1:9/keys'});
    await assert.rejects(check(iapHeader()), error => !(error instanceof CallerRefused));
  });

  it('cannot be checked without its audience', () => {
    assert.throws(
      () => openIapCheck(aConfig().identity),
      (error: Error) => {
        assert.ok(error instanceof ConfigError);
        assert.match(error.message, /^Failed to start the pages behind IAP\. .*\n {2}GLEANER_IAP_AUDIENCE: /);
        return true;
      },
    );
  });
});
