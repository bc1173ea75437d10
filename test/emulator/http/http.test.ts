import assert from 'node:assert/strict';
import {once} from 'node:events';
import {request} from 'node:http';
import {Readable} from 'node:stream';
import {serve} from '../../../emulator/http/http.ts';

describe('the server of the local cloud', () => {
  it('closes the file of an answer whose client has gone before it', async () => {
    const body = Readable.from(['a', 'b']);
    const server = await serve(
      async ({signal}) => {
        client.destroy();
        await once(signal, 'abort');
        return {body};
      },
      {port: 0, trouble: error => assert.fail(String(error))},
    );
    const client = request(server.url);
    client.on('error', () => {}).end();
    await once(body, 'close');
    assert.ok(body.destroyed);
    await server.close();
  });
});
