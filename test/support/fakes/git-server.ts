/** A git repository over HTTP on 127.0.0.1, served by git's own CGI program. */
import {execFileSync, spawn} from 'node:child_process';
import {mkdtempSync, rmSync, writeFileSync} from 'node:fs';
import {createServer, type IncomingMessage, type Server, type ServerResponse} from 'node:http';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {addressOf, listen} from '../machine/listen.ts';

const NAME = 'code.git';

/** A person's identity, and no settings of this machine. */
const ENV = {
  ...{PATH: process.env.PATH ?? '', HOME: '/nonexistent', GIT_CONFIG_NOSYSTEM: '1'},
  ...{GIT_AUTHOR_NAME: 'A', GIT_AUTHOR_EMAIL: 'a@example.com'},
  ...{GIT_COMMITTER_NAME: 'A', GIT_COMMITTER_EMAIL: 'a@example.com'},
};

export class GitServer {
  readonly #dir: string;
  readonly #server: Server;
  /** The token that every request must have from now on; undefined: the repository is public. */
  token: string | undefined;

  private constructor(dir: string) {
    this.#dir = dir;
    this.#git('init', '--quiet', '--initial-branch=main', 'work');
    this.#git('init', '--quiet', '--bare', '--initial-branch=main', NAME);
    this.#git('-C', 'work', 'remote', 'add', 'origin', join(dir, NAME));
    this.#server = createServer((request, response) => this.#serve(request, response));
  }

  static async start(): Promise<GitServer> {
    const git = new GitServer(mkdtempSync(join(tmpdir(), 'gleaner-git-')));
    await listen(git.#server);
    return git;
  }

  get url(): string {
    return `http://${addressOf(this.#server)}/${NAME}`;
  }

  /** Commits one file, and moves a ref to the commit: a branch, or `refs/pull/7/head`. Returns the commit. */
  commit(ref: string, file: string, text: string): string {
    writeFileSync(join(this.#dir, 'work', file), text);
    this.#git('-C', 'work', 'add', '--all');
    this.#git('-C', 'work', 'commit', '--quiet', '--allow-empty', '--message', `Change ${file}`);
    const full = ref.startsWith('refs/') ? ref : `refs/heads/${ref}`;
    // A force-push is usual on branches under review.
    this.#git('-C', 'work', 'push', '--quiet', '--force', 'origin', `HEAD:${full}`);
    return this.#git('-C', 'work', 'rev-parse', 'HEAD').trim();
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise(resolve => this.#server.close(resolve));
    rmSync(this.#dir, {recursive: true, force: true});
  }

  #git(...args: string[]): string {
    return execFileSync('git', args, {cwd: this.#dir, env: ENV, encoding: 'utf8'});
  }

  #serve(request: IncomingMessage, response: ServerResponse): void {
    if (this.token !== undefined && request.headers.authorization !== basic(this.token)) {
      response.writeHead(401, {'www-authenticate': 'Basic realm="git"'}).end();
      return;
    }
    const {pathname, search} = new URL(request.url ?? '/', 'http://git');
    const child = spawn('git', ['http-backend'], {
      env: {
        ...ENV,
        GIT_PROJECT_ROOT: this.#dir,
        GIT_HTTP_EXPORT_ALL: '1',
        PATH_INFO: decodeURIComponent(pathname),
        QUERY_STRING: search.slice(1),
        REQUEST_METHOD: request.method ?? 'GET',
        CONTENT_TYPE: request.headers['content-type'] ?? '',
        HTTP_CONTENT_ENCODING: request.headers['content-encoding'] ?? '',
        GIT_PROTOCOL: String(request.headers['git-protocol'] ?? ''),
      },
      stdio: ['pipe', 'pipe', 'ignore'],
    });
    child.once('error', () => response.writeHead(500).end());
    request.pipe(child.stdin.on('error', () => {}));
    const parts: Buffer[] = [];
    child.stdout.on('data', part => parts.push(part));
    child.once('close', () => answer(Buffer.concat(parts), response));
  }
}

/** The header that signs in with a token, as hosts of repositories accept it. */
function basic(token: string): string {
  return `Basic ${Buffer.from(`x-access-token:${token}`).toString('base64')}`;
}

/** Turns the output of a CGI program, headers and content, into an answer. */
function answer(output: Buffer, response: ServerResponse): void {
  const end = output.indexOf('\r\n\r\n');
  const headers = output
    .subarray(0, Math.max(end, 0))
    .toString('latin1')
    .split('\r\n')
    .map(line => line.split(/: (.*)/s, 2) as [string, string]);
  const status = headers.find(([name]) => name === 'Status')?.[1] ?? (end < 0 ? '500' : '200');
  for (const [name, value] of headers) if (name && name !== 'Status') response.setHeader(name, value);
  response.writeHead(Number.parseInt(status, 10)).end(output.subarray(end < 0 ? output.length : end + 4));
}
