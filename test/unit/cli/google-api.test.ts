/** Answers of Google's REST APIs that break. */
import assert from 'node:assert/strict';
import {createServer, type Server, type ServerResponse} from 'node:http';
import {type GoogleError, openGoogle} from '../../../client/google/api.ts';
import {addressOf, listen} from '../../support/machine/listen.ts';

describe('A call of a REST API of Google', () => {
  let server: Server;
  let reply: (answer: ServerResponse) => void;
  beforeEach(async () => {
    server = createServer((_, answer) => reply(answer));
    await listen(server);
  });
  afterEach(() => new Promise(resolve => server.close(resolve)));

  const refusals: {name: string; answer: typeof reply; says: RegExp}[] = [
    {
      name: 'that breaks within its answer',
      answer: answer => {
        answer.writeHead(200, {'content-length': '100'}).write('{"a"', () => answer.destroy());
      },
      says: /Failed to GET x\.googleapis\.com\/v1\/a: no answer: /,
    },
    {
      name: 'with the page of a proxy',
      answer: answer => void answer.writeHead(200).end('<html>sign in</html>'),
      says: /Failed to GET x\.googleapis\.com\/v1\/a: the answer is not a JSON object; a proxy/,
    },
    {
      name: 'with a value that is no object',
      answer: answer => void answer.writeHead(200).end('null'),
      says: /the answer is not a JSON object/,
    },
  ];
  for (const {name, answer, says} of refusals)
    it(`${name} is one that a retry may mend`, async () => {
      reply = answer;
      const api = openGoogle({endpoint: `http://${addressOf(server)}`});
      await assert.rejects(api.call('GET', 'x.googleapis.com/v1/a'), (error: GoogleError) => {
        assert.match(error.message, says);
        return error.name === 'GoogleError' && error.code === 503;
      });
    });
});
