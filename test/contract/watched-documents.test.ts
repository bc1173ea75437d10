import assert from 'node:assert/strict';
import {createServer as createHttp2} from 'node:http2';
import {createRequire} from 'node:module';
import {connect, createServer, type Socket} from 'node:net';
import {dirname, join} from 'node:path';
import {type NewDocument, watchDocuments} from '../../emulator/google/documents.ts';
import {openFirestoreStore} from '../../shared/google/firestore-store.ts';
import {listen} from '../support/machine/listen.ts';
import {describeOnEmulator} from './emulators.ts';

/** The backoff of the client, which tries ten times before it reports an error: about two minutes. */
const load = createRequire(import.meta.url);
const backoff: {setTimeoutHandler: (handler: (f: () => void, ms: number) => unknown) => void} = load(
  join(dirname(load.resolve('@google-cloud/firestore/package.json')), 'build/src/backoff.js'),
);
const IDLE_MS = 100_000;
const PROJECT = 'watched';
const PERMISSION_DENIED = '7';

describeOnEmulator('firestore', 'a listener to new documents', host => {
  before(() => backoff.setTimeoutHandler((f, ms) => setTimeout(f, ms < IDLE_MS ? 0 : ms)));
  after(() => backoff.setTimeoutHandler(setTimeout));

  it('begins also when the first client can never listen', async () => {
    const sockets: Socket[] = [];
    const refusing = createHttp2().on('stream', stream => {
      const headers = {':status': 200, 'content-type': 'application/grpc', 'grpc-status': PERMISSION_DENIED};
      stream.respond(headers, {endStream: true});
    });
    const proxy = createServer(socket => {
      sockets.push(socket.on('error', () => {}));
      if (sockets.length === 1) return void refusing.emit('connection', socket);
      const port = Number(host().split(':')[1]);
      socket.pipe(connect(port, '127.0.0.1').on('error', () => {})).pipe(socket);
    });
    const troubles: string[] = [];
    const found = Promise.withResolvers<NewDocument>();
    const end = await watchDocuments({
      ...{host: await listen(proxy), project: PROJECT, database: '(default)'},
      ...{collection: 'jobs', created: found.resolve, trouble: error => troubles.push(String(error))},
    });
    assert.equal(troubles.length, 1, String(troubles));
    process.env.FIRESTORE_EMULATOR_HOST = host();
    const store = openFirestoreStore({project: PROJECT});
    await store.transaction(async tx => tx.set('jobs/first', {status: 'pending'}));
    assert.equal((await found.promise).path, 'jobs/first');
    await Promise.all([end(), store.close()]);
    delete process.env.FIRESTORE_EMULATOR_HOST;
    for (const socket of sockets) socket.destroy();
    proxy.close();
  });
});
