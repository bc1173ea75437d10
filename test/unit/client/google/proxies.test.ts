import assert from 'node:assert/strict';
import {createServer, type Server} from 'node:http';
import {useProxies} from '../../../../client/google/proxies.ts';
import {withDirectLoopback} from '../../../../emulator/http/proxies.ts';
import {listen} from '../../../support/machine/listen.ts';
import {FakeHub} from '../../cli/streams/a-hub.ts';

describe('The proxies of the environment', () => {
  let proxy: Server;
  let asked: string[];
  let restore = () => {};
  beforeEach(async () => {
    asked = [];
    proxy = createServer((request, response) => {
      asked.push(`${request.method} ${request.url}`);
      response.writeHead(502).end();
    });
    proxy.on('connect', (request, socket) => {
      asked.push(`CONNECT ${request.url}`);
      socket.end('HTTP/1.1 502 Bad Gateway\r\n\r\n');
    });
    const at = `http://${await listen(proxy)}`;
    restore = useProxies({HTTP_PROXY: at, HTTPS_PROXY: at, http_proxy: at, https_proxy: at});
  });
  afterEach(() => {
    restore();
    proxy.close();
  });

  it('the proxies of the environment get the requests to a hub on another machine', async () => {
    await assert.rejects(fetch('https://hub.example/api/datasets/org/data'));
    assert.deepEqual(asked, ['CONNECT hub.example:443']);
  });

  it('the proxies of the environment get no request to a hub on loopback', async () => {
    const hub = await FakeHub.start({main: {commit: 'a'.repeat(40), files: {}}});
    assert.ok(await hub.client().commit('datasets', 'org/data', 'main'));
    assert.deepEqual(asked, []);
    await hub.end();
  });
});

describe('An environment with a proxy', () => {
  const LOOPBACK = '127.0.0.1,localhost,::1,[::1]';
  for (const {name, given, no_proxy, no_grpc_proxy = no_proxy} of [
    {name: 'excludes loopback', given: {}, no_proxy: LOOPBACK},
    {name: 'keeps both spellings', given: {no_proxy: 'a', NO_PROXY: 'b, a'}, no_proxy: `a,b,${LOOPBACK}`},
    {name: 'keeps a star alone', given: {NO_PROXY: '*'}, no_proxy: '*', no_grpc_proxy: LOOPBACK},
  ])
    it(name, () => {
      const env = withDirectLoopback<NodeJS.ProcessEnv>({...given, HTTPS_PROXY: 'http://proxy:1'});
      assert.deepEqual([env.no_proxy, env.NO_PROXY, env.no_grpc_proxy], [no_proxy, no_proxy, no_grpc_proxy]);
    });

  it('an environment with a proxy stays as it is without a proxy', () => {
    assert.deepEqual(withDirectLoopback({PATH: 'x', HTTPS_PROXY: ''}), {PATH: 'x', HTTPS_PROXY: ''});
  });
});
