import {STATUS_CODES} from 'node:http';
import {Readable} from 'node:stream';
import {ApiError} from '../http/errors.ts';
import {type Reply, type Request, type Route, router} from '../http/http.ts';
import {authorized} from '../http/permissions.ts';
import {readBytes} from '../http/request-body.ts';

const max_bytes = 10 << 20;
const max_calls = 100;

/** `POST` at the path: several calls in one request, in the format of Python's `with client.batch()`, which gcloud uses too. */
export function batchRoute(path: string, routes: Route[]): Route {
  const answer = router(authorized(routes));
  return [
    'POST',
    path,
    async request => {
      const boundary = /boundary="?([^";]+)"?/i.exec(request.headers['content-type'] ?? '')?.[1];
      if (!boundary) throw new ApiError(400, 'Failed to read the batch: its Content-Type names no boundary');
      const body = (await readBytes(request.body, max_bytes, 'the batch')).toString('utf8');
      const parts = body.split(`--${boundary}`).slice(1, -1);
      if (parts.length > max_calls)
        throw new ApiError(400, `A batch holds at most ${max_calls} calls; this batch holds ${parts.length}`);
      let text = '';
      for (const part of parts) text += `--answers\r\n${await answerPart(part, request, answer)}`;
      const type = 'multipart/mixed; boundary=answers';
      return {headers: {'content-type': type}, body: `${text}--answers--\r\n`};
    },
  ];
}

async function answerPart(
  part: string,
  outer: Request,
  answer: (request: Omit<Request, 'params'>) => Promise<Reply>,
): Promise<string> {
  // A part has its own headers and a whole HTTP request: request line, headers and body.
  const [outside = '', head = '', ...rest] = part.replaceAll('\r\n', '\n').trimStart().split('\n\n');
  const [, method = '', target = ''] = /^(\w+) (\S+)/.exec(head) ?? [];
  const id = /^content-id:\s*<?([^>\n]*)>?/im.exec(outside)?.[1] ?? '';
  const {pathname, searchParams} = new URL(target, 'http://batch');
  let reply: Reply;
  try {
    reply = await answer({
      ...outer,
      method,
      // A client whose address of the service has a path, such as that of a relay, repeats it in each part.
      path: pathname.replace(/^\/.*?(?=\/storage\/v1\/)/, ''),
      query: searchParams,
      headers: {host: outer.headers.host, authorization: outer.headers.authorization},
      body: Readable.from([Buffer.from(rest.join('\n\n'))]),
    });
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    reply = {status: error.status, json: error.body()};
  }
  if (reply.body instanceof Readable) {
    reply.body.destroy();
    const refusal = 'Failed to download in a batch: download the object with its own request';
    reply = {status: 400, json: new ApiError(400, refusal).body()};
  }
  const status = reply.status ?? 200;
  const content = reply.json ? JSON.stringify(reply.json) : '';
  return [
    'Content-Type: application/http',
    `Content-ID: <response-${id}>`,
    '',
    `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ''}`,
    'Content-Type: application/json; charset=UTF-8',
    `Content-Length: ${Buffer.byteLength(content)}`,
    '',
    `${content}\r\n`,
  ].join('\r\n');
}
