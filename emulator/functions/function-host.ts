import type {Server} from 'node:http';
import {flushCompileCache} from 'node:module';
import type {AddressInfo} from 'node:net';
import {join, resolve} from 'node:path';
import {fileURLToPath, pathToFileURL} from 'node:url';
import {isSameText} from '../../shared/contracts/constant-time.ts';
import {accessTokenOf} from '../http/access-tokens.ts';
import {ApiError} from '../http/errors.ts';
import {HOST_HEADER, pushTokenOf, unauthenticated} from '../http/guard.ts';
import {refusePages} from '../http/web-pages.ts';
import {replaceDomains} from './domains.ts';
import {keptFile} from './one-file.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const FLUSH_MS = 5000;

/**
 * Runs the functions of a module, each on its own port, and sends the ports to the parent: `function-host MODULE NAME…`.
 * The host ends with its parent and answers only its parent.
 */
async function main([module, ...names]: string[]): Promise<void> {
  process.on('disconnect', () => process.exit());
  replaceDomains();
  const token = process.env.GLEANER_LOCAL_TOKEN;
  if (module === undefined || !token || !process.send) {
    throw new Error('Failed to host functions: fork this file with a module and the names of its functions');
  }
  // The functions act as their account, which has the rights of the deployment's account.
  const account = process.env.GLEANER_CONTROL_SERVICE_ACCOUNT;
  if (account) process.env.GLEANER_LOCAL_TOKEN = accessTokenOf(token, account);
  const {getTestServer} = await import('@google-cloud/functions-framework/testing');
  const kept = resolve(module) === join(ROOT, 'functions/index.ts') ? keptFile(ROOT, 'functions') : undefined;
  await import(pathToFileURL(kept ?? resolve(module)).href);
  const ports: Record<string, number> = {};
  for (const name of names) {
    const server = getTestServer(name);
    answerOnly(server, token);
    // The host never closes an idle connection: a request that is sent at that moment would be lost, and a POST cannot be sent twice.
    server.keepAliveTimeout = 0;
    // By default the framework listens on every interface.
    await new Promise<void>((listening, failed) => {
      server.once('error', failed);
      server.listen(0, '127.0.0.1', listening);
    });
    ports[name] = (server.address() as AddressInfo).port;
  }
  process.send({ports});
  // The parent kills this process before Node writes the compile cache. The first events load most of the sources.
  setTimeout(flushCompileCache, FLUSH_MS).unref();
}

/**
 * Refuses a request without the token before the framework reads its body, because the framework accepts forms as events. Google's Pub/Sub
 * emulator cannot send our header, so its token is in the query of the push endpoint.
 */
function answerOnly(server: Server, token: string): void {
  const push_token = pushTokenOf(token);
  const framework = server.listeners('request');
  server.removeAllListeners('request');
  server.on('request', (request, response) => {
    try {
      refusePages(request.headers);
      const [path, search] = (request.url ?? '/').split(/\?(.*)/s);
      const given = new URLSearchParams(search).get('token') ?? '';
      const isPush = request.method === 'POST' && isSameText(given, push_token);
      if (!isPush && !isSameText(String(request.headers[HOST_HEADER]), token)) throw unauthenticated();
      if (isPush) request.url = path;
    } catch (error) {
      response.writeHead(error instanceof ApiError ? error.status : 500).end();
      return;
    }
    for (const listener of framework) listener.call(server, request, response);
  });
}

await main(process.argv.slice(2));
