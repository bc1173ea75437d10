import assert from 'node:assert/strict';
import {createServer, type Server} from 'node:http';
import {errorText} from '../../../cli/terminal/error-text.ts';
import {resumableUploads} from '../../../client/google/resumable.ts';
import {openObjects} from '../../../shared/google/objects.ts';
import {addressOf, listen} from '../../support/machine/listen.ts';

describe('An error of Cloud Storage', () => {
  let server: Server;
  let answer: {status: number; body: string};
  beforeEach(async () => {
    server = createServer((request, response) => {
      request.resume();
      response.writeHead(answer.status, {'content-type': 'text/html'}).end(answer.body);
    });
    await listen(server);
  });
  afterEach(() => {
    server.closeAllConnections();
    server.close();
  });

  const place = () => {
    const endpoint = `http://${addressOf(server)}`;
    const retries = {
      attempts: 1,
      give_up_ms: 2000,
      read_ms: 2000,
      first_wait_ms: 1,
      longest_wait_ms: 1,
      silence_ms: 2000,
    };
    return {project: 'p', bucket: 'b', endpoint, token: 't', retries};
  };
  const calls: Record<string, () => Promise<unknown>> = {
    'a list': () => openObjects(place()).list('datasets/'),
    'a read': () => openObjects(place()).read('datasets/x', {max_bytes: 9}),
    'a create': () => openObjects(place()).create('datasets/x', Buffer.from('x')),
    'an upload in pieces': () =>
      resumableUploads(place()).begin({
        name: 'datasets/x',
        size_bytes: 9,
        crc32c: '',
        content_type: 'text/plain',
      }),
  };
  const answers = [
    {status: 403, body: '<html>\n<h1>Forbidden</h1>\n</html>'},
    {status: 418, body: `<html>\n${'<p>no</p>\n'.repeat(2000)}</html>`},
    {status: 503, body: 'Service\nUnavailable'},
  ];
  for (const [name, call] of Object.entries(calls))
    for (const given of answers)
      it(`an error of Cloud Storage is one sentence for ${name} that ends with ${given.status}`, async () => {
        answer = given;
        const error = await call().then(
          () => assert.fail('the call succeeded'),
          (error: Error) => error,
        );
        const text = await errorText(error);
        assert.match(text ?? error.stack ?? '', /^Failed to .* gs:\/\/b\/datasets\/.{1,2500}$/);
      });
});
