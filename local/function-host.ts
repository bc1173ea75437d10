import type {AddressInfo} from 'node:net';
import {resolve} from 'node:path';
import {pathToFileURL} from 'node:url';
import {getTestServer} from '@google-cloud/functions-framework/testing';

/**
 * Runs the functions of a module, each on a port of its own, and tells the parent which: `function-host MODULE NAME…`.
 * It lives no longer than its parent.
 */
async function main([module, ...names]: string[]): Promise<void> {
  process.on('disconnect', () => process.exit());
  if (module === undefined || !process.send) {
    throw new Error('Failed to host functions: fork this file with a module and the names of its functions');
  }
  await import(pathToFileURL(resolve(module)).href);
  const ports: Record<string, number> = {};
  for (const name of names) {
    const server = getTestServer(name);
    // The framework would listen on every interface; only this machine may call.
    await new Promise<void>((listening, failed) => {
      server.once('error', failed);
      server.listen(0, '127.0.0.1', listening);
    });
    ports[name] = (server.address() as AddressInfo).port;
  }
  process.send({ports});
}

await main(process.argv.slice(2));
