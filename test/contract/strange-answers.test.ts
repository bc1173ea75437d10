import assert from 'node:assert/strict';
import {createServer, type IncomingMessage, type Server, type ServerResponse} from 'node:http';
import {openObjects} from '../../shared/google/objects.ts';
import {STORAGE_RETRIES} from '../../shared/google/retry.ts';
import {addressOf, listen} from '../support/machine/listen.ts';

const METADATA = JSON.stringify({
  ...{kind: 'storage#object', bucket: 'b', name: 'a', generation: '1', size: '1', crc32c: 'AAAAAA=='},
  timeCreated: '2026-11-23T00:00:00.000Z',
});

describe('Objects: strange answers', () => {
  let server: Server;
  let answer: (request: IncomingMessage, response: ServerResponse) => void;
  let requests = 0;
  before(async () => {
    server = createServer((request, response) => {
      requests++;
      answer(request, response);
    });
    await listen(server);
  });
  beforeEach(() => {
    requests = 0;
  });
  after(() => {
    server.closeAllConnections();
    server.close();
  });

  function bucket(limits: Partial<typeof STORAGE_RETRIES> = {}) {
    const endpoint = `http://${addressOf(server)}`;
    const retries = {...STORAGE_RETRIES, first_wait_ms: 2, ...limits};
    return openObjects({project: 'p', bucket: 'b', endpoint, token: 'x', retries});
  }

  it('a read with metadata and without content fails after five rounds', async () => {
    answer = ({url}, response) => {
      const isContent = url?.includes('alt=media');
      response.writeHead(isContent ? 404 : 200, {'content-type': 'application/json'});
      response.end(isContent ? '{"error":{"code":404,"message":"No such object"}}' : METADATA);
    };
    await assert.rejects(bucket().read('a', {max_bytes: 9}), {
      message:
        'Failed to read gs://b/a: its metadata was found and its content was not, 5 times; stop other writers of this object, or try again later',
    });
    assert.equal(requests, 10);
  });

  it('a read whose bytes come too slowly ends at its limit, and its connection ends', async () => {
    const closed = new Promise<void>(resolve => {
      answer = ({url}, response) => {
        if (!url?.includes('alt=media')) {
          response.setHeader('content-type', 'application/json');
          response.end(METADATA.replace('"size":"1"', '"size":"1000"'));
          return;
        }
        response.writeHead(200, {'content-length': '1000'});
        const drip = setInterval(() => response.write('x'), 50);
        response.once('close', () => {
          clearInterval(drip);
          resolve();
        });
      };
    });
    await assert.rejects(bucket({silence_ms: 500, read_ms: 1200}).read('a', {max_bytes: 1000}), {
      message: 'Failed to read gs://b/a: its content did not arrive within 1.2 s; try again later',
    });
    await closed;
    assert.equal(requests, 2);
  });

  it('an upload whose bytes arrive damaged fails, and its object is deleted', async () => {
    const verbs: string[] = [];
    answer = ({method = ''}, response) => {
      verbs.push(method);
      response.writeHead(method === 'DELETE' ? 204 : 200, {'content-type': 'application/json'});
      response.end(method === 'DELETE' ? '' : METADATA);
    };
    const differs = /^ServiceError: Failed to create gs:\/\/b\/a: The uploaded data did not match/;
    await assert.rejects(bucket().create('a', Buffer.from('x')), differs);
    assert.deepEqual(verbs, ['POST', 'DELETE']);
  });

  const page = (_: IncomingMessage, response: ServerResponse) => {
    response.writeHead(200, {'content-type': 'text/html'});
    response.end('<html>Sign in</html>');
  };
  const foreign =
    'the answer is not from Cloud Storage; check GLEANER_STORAGE_ENDPOINT and the proxy of the network';

  it('a web page in place of metadata is an error with advice', async () => {
    answer = page;
    await assert.rejects(bucket().head('a'), {
      message: `Failed to read the metadata of gs://b/a: ${foreign}`,
    });
  });

  it('a web page in place of a list is an error, not an empty list', async () => {
    answer = page;
    await assert.rejects(bucket().list('a'), {message: `Failed to list gs://b/a: ${foreign}`});
  });
});
