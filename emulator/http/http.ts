import {createServer, type IncomingMessage, type Server, type ServerResponse} from 'node:http';
import type {AddressInfo} from 'node:net';
import type {Readable} from 'node:stream';
import {pipeline} from 'node:stream/promises';
import type {Caller} from './access-tokens.ts';
import {ApiError, LocalCloudError} from './errors.ts';
import type {JsonObject} from './json.ts';
import {splitTokenPath} from './token-path.ts';
import {refusePages} from './web-pages.ts';

export type Request = {
  method: string;
  /** Path before percent-decoding. */
  path: string;
  /** Values of the `{names}` in the template, after percent-decoding. */
  params: Record<string, string>;
  query: URLSearchParams;
  /** Address of the cloud as the client names it, for links in answers. It includes the token if the request's path does. */
  origin: string;
  headers: IncomingMessage['headers'];
  /** Set by the guard of the cloud. */
  caller?: Caller;
  body: Readable;
  /** Aborts when the client disconnects. */
  signal: AbortSignal;
};

export type Reply = {
  status?: number;
  headers?: Record<string, string | string[] | undefined>;
  json?: JsonObject;
  body?: string | Buffer | Readable;
};

export type Handle = (request: Omit<Request, 'params'>) => Promise<Reply>;

export type Handler = (request: Request) => Reply | Promise<Reply>;

/**
 * Method (`*` matches every method), template and handler. `{name}` matches a segment or a part of one, `{name...}` the rest of the path. The
 * first match wins. If a route names no permission, that of `permissions.ts` applies.
 */
export type Route = readonly [method: string, template: string, handler: Handler, permission?: string];

type CompiledRoute = {method: string; pattern: RegExp; names: string[]; handler: Handler};

function compile([method, template, handler]: Route): CompiledRoute {
  const names: string[] = [];
  const pattern = template.replace(/\{(\w+)(\.\.\.)?\}|[.+*?^$()|[\]\\]/g, (match, name, rest) => {
    if (name === undefined) return `\\${match}`;
    names.push(name);
    return rest ? '(.*)' : '([^/]+?)';
  });
  return {method, pattern: new RegExp(`^${pattern}$`, 's'), names, handler};
}

export function decodeSegment(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    throw new ApiError(400, `Failed to read "${segment}" in the path: it is not percent-encoded UTF-8`);
  }
}

/** Answers a request by the first route that matches, otherwise with a 404 that names the request. */
export function router(routes: readonly Route[]): Handle {
  const compiled = routes.map(compile);
  return async request => {
    for (const {method, pattern, names, handler} of compiled) {
      if (method !== '*' && method !== request.method && !(method === 'GET' && request.method === 'HEAD'))
        continue;
      const match = pattern.exec(request.path);
      if (!match) continue;
      const params = Object.fromEntries(names.map((name, i) => [name, decodeSegment(match[i + 1] ?? '')]));
      return handler({...request, params});
    }
    throw new ApiError(404, `Nothing is at ${request.method} ${request.path} in the local cloud`);
  };
}

async function send(reply: Reply, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const body = reply.json === undefined ? (reply.body ?? '') : `${JSON.stringify(reply.json)}\n`;
  for (const [name, value] of Object.entries(reply.headers ?? {})) {
    if (value !== undefined) response.setHeader(name, value);
  }
  if (reply.json !== undefined) response.setHeader('content-type', 'application/json; charset=UTF-8');
  // These headers prevent web pages from reading an answer as a script or an image.
  response.setHeader('x-content-type-options', 'nosniff');
  response.setHeader('cross-origin-resource-policy', 'same-origin');
  response.statusCode = reply.status ?? 200;
  const isWhole = typeof body === 'string' || Buffer.isBuffer(body);
  if (
    isWhole &&
    response.statusCode !== 204 &&
    response.statusCode !== 304 &&
    !response.hasHeader('content-length')
  ) {
    response.setHeader('content-length', Buffer.byteLength(body));
  }
  if (request.method === 'HEAD' || isWhole) {
    if (!isWhole) body.destroy();
    response.end(request.method === 'HEAD' ? undefined : body);
    return;
  }
  // A client that disconnects during a download is no error of the cloud. If it did so before, the body stays unread and open.
  await pipeline(body, response).catch(() => {
    body.destroy();
    response.destroy();
  });
}

export type HttpServer = {port: number; url: string; close(): Promise<void>};

/** Serves `handle` on 127.0.0.1. `trouble` receives internal errors; errors of the client become answers. */
export async function serve(
  handle: Handle,
  options: {port: number; trouble: (error: unknown, request: string) => void},
): Promise<HttpServer> {
  const server = createServer({requestTimeout: 0, keepAliveTimeout: 75_000}, (request, response) => {
    const disconnect = new AbortController();
    // An abort makes an error with a stack, so an answered request gets none.
    response.once('close', () => {
      if (!(request.complete && response.writableFinished)) disconnect.abort();
    });
    const answer = async (): Promise<Reply> => {
      try {
        refusePages(request.headers);
        const [path = '/', search = ''] = (request.url ?? '/').split(/\?(.*)/s);
        return await handle({
          method: request.method ?? 'GET',
          path,
          query: new URLSearchParams(search),
          // A relay names its own address, so that the links in answers lead back to it.
          origin: `http://${request.headers['x-forwarded-host'] ?? request.headers.host}`,
          headers: request.headers,
          body: request,
          signal: disconnect.signal,
        });
      } catch (error) {
        if (error instanceof ApiError)
          return {status: error.status, headers: error.headers, json: error.body()};
        if (!disconnect.signal.aborted)
          options.trouble(error, `${request.method} ${splitTokenPath(request.url ?? '/').path}`);
        return {status: 500, json: new ApiError(500, `Internal error: ${(error as Error).message}`).body()};
      }
    };
    answer()
      .then(reply => send(reply, request, response))
      // A refused client reads the answer only after it has sent its body, so the rest of the body is discarded. A handler
      // that stopped in the middle of the body left a `readable` listener, which would keep the stream from flowing.
      .then(() => request.removeAllListeners('readable').resume())
      .catch(error => {
        options.trouble(error, `${request.method} ${splitTokenPath(request.url ?? '/').path}`);
        response.destroy();
      });
  });
  server.on('clientError', (_error, socket) => socket.destroy());
  const port = await listen(server, options.port);
  return {
    port,
    url: `http://127.0.0.1:${port}`,
    close: () =>
      new Promise(resolve => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

function listen(server: Server, port: number): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => {
      reject(error.code === 'EADDRINUSE' || error.code === 'EACCES' ? portInUse(port, error) : error);
    });
    server.listen(port, '127.0.0.1', () => resolve((server.address() as AddressInfo).port));
  });
}

/** Throws `port-in-use` if a server cannot listen; port 0 stands for any free port. */
export async function checkPort(port: number): Promise<void> {
  const server = createServer();
  await listen(server, port);
  await new Promise(resolve => server.close(resolve));
}

export function portInUse(port: number, cause: unknown): LocalCloudError {
  return new LocalCloudError(
    'port-in-use',
    `Failed to listen on 127.0.0.1:${port}: another program has the port or it is reserved; end that program or choose another with --port`,
    {cause},
  );
}
