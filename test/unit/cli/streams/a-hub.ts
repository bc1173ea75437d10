import {createHash} from 'node:crypto';
import {createServer, type IncomingMessage, type Server, type ServerResponse} from 'node:http';
import {pipeline, Readable} from 'node:stream';
import {type Hub, openHub} from '../../../../cli/streams/sources/hub.ts';
import {addressOf, listen} from '../../../support/machine/listen.ts';

export const COMMIT = 'a'.repeat(40);
export const CONVERTED_COMMIT = 'b'.repeat(40);

/** A hub sends a file of git whole, also where a part is wanted. */
const WHOLE_BYTES = 64;

type Files = Record<string, Uint8Array>;
type Refusal = {status: number; headers?: Record<string, string>; body?: string; isEndless?: boolean};

/** Loopback server with the API of a hub, for one data set `org/data` and one model `org/model`. Each has every revision. */
export class FakeHub {
  readonly requests: {
    url: string;
    host: string | undefined;
    range: string | undefined;
    authorization: string | undefined;
  }[] = [];
  /** Files of each revision. */
  readonly revisions: Record<string, {commit: string; files: Files}>;
  /** Answers that replace the next ones. */
  readonly refusals: Refusal[] = [];
  /** Files that are listed and cannot be read, and files that arrive with other bytes. */
  readonly missing = new Set<string>();
  readonly damaged = new Set<string>();
  readonly #server: Server;

  private constructor(revisions: FakeHub['revisions']) {
    this.revisions = revisions;
    this.#server = createServer((request, response) => this.#answer(request, response));
  }

  static async start(revisions: FakeHub['revisions']): Promise<FakeHub> {
    const hub = new FakeHub(revisions);
    await listen(hub.#server);
    return hub;
  }

  get url(): string {
    return `http://${addressOf(this.#server)}`;
  }

  client(token?: string, kind?: 'data set' | 'model'): Hub {
    const waits = {first_wait_ms: 1, longest_wait_ms: 2, silence_ms: 5000};
    const retries = {attempts: 3, give_up_ms: 5000, read_ms: 5000, ...waits};
    return openHub({endpoint: this.url, token, retries}, kind);
  }

  async end(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise(done => this.#server.close(done));
  }

  #answer({url = '', headers}: IncomingMessage, response: ServerResponse): void {
    const {host, range, authorization} = headers;
    this.requests.push({url, host, range, authorization});
    const refusal = this.refusals.shift();
    const listing =
      /^\/api\/(?:datasets\/org\/data|models\/org\/model)\/revision\/([^?/]+)\?blobs=true$/.exec(url)?.[1];
    const [, commit, path = ''] =
      /^\/(?:datasets\/org\/data|org\/model)\/resolve\/([0-9a-f]{40})\/(.+)$/.exec(url) ?? [];
    const found = Object.values(this.revisions).find(revision => revision.commit === commit);
    const bytes = found?.files[decodeURIComponent(path)];
    if (refusal?.isEndless) {
      response.writeHead(refusal.status, refusal.headers);
      pipeline(Readable.from(mebibytes(), {objectMode: false}), response, () => {});
    } else if (refusal) response.writeHead(refusal.status, refusal.headers).end(refusal.body);
    else if (listing) this.#list(decodeURIComponent(listing), response);
    else if (bytes && !this.missing.has(path))
      this.#send(this.damaged.has(path) ? bytes.map(byte => byte ^ 1) : bytes, headers.range, response);
    else response.writeHead(404).end('{"error":"Entry not found"}');
  }

  #list(revision: string, response: ServerResponse): void {
    const found = this.revisions[revision];
    const siblings = Object.entries(found?.files ?? {}).map(([rfilename, bytes]) => ({
      rfilename,
      size: bytes.length,
      ...digestOf(rfilename, bytes),
    }));
    if (found) response.end(JSON.stringify({id: 'org/data', sha: found.commit, siblings}));
    else response.writeHead(404).end('{"error":"Invalid rev id"}');
  }

  #send(bytes: Uint8Array, range: string | undefined, response: ServerResponse): void {
    if (bytes.length < WHOLE_BYTES) {
      response.writeHead(200, {'content-length': bytes.length}).end(bytes);
      return;
    }
    const [, start = '0', end = bytes.length] = /^bytes=(\d+)-(\d+)$/.exec(range ?? '') ?? [];
    const part = bytes.subarray(Number(start), Number(end) + 1);
    const stated = `bytes ${start}-${Number(start) + part.length - 1}/${bytes.length}`;
    response.writeHead(206, {'content-range': stated}).end(part);
  }
}

function* mebibytes(): Generator<Buffer> {
  for (;;) yield Buffer.alloc(1 << 20, ' ');
}

/** The digest that a hub states: of git, or of its storage of large files. */
function digestOf(name: string, bytes: Uint8Array): object {
  if (!name.endsWith('.safetensors'))
    return {blobId: createHash('sha1').update(`blob ${bytes.length}\0`).update(bytes).digest('hex')};
  return {lfs: {sha256: createHash('sha256').update(bytes).digest('hex')}};
}
