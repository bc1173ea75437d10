import {type ChildProcess, fork} from 'node:child_process';
import {request as httpRequest} from 'node:http';
import {createInterface} from 'node:readline';
import type {Readable} from 'node:stream';
import {setTimeout as sleep} from 'node:timers/promises';
import {nameIn} from '../../shared/domain/deployment.ts';
import {ApiError, LocalCloudError} from '../http/errors.ts';
import {HOST_HEADER} from '../http/guard.ts';
import type {Reply, Request, Route} from '../http/http.ts';
import {withDirectLoopback} from '../http/proxies.ts';
import {sourceStack} from './one-file.ts';
import {toFunctions} from './push.ts';
import {type FunctionTrigger, httpFunctions} from './triggers.ts';

export type FunctionHostOptions = {
  deployment: string;
  /** Script to fork. Its arguments are the module and the names; it sends its ports. */
  entry: string;
  /** Module that registers the functions. */
  module: string;
  /** Called at every start, because addresses are known only when the emulator listens. */
  env: () => Record<string, string>;
  triggers: FunctionTrigger[];
  /** Token that every request to the host carries; the host reads it from `env`. */
  token: string;
  log: (text: string) => void;
  /** Called after every start, when the functions listen on new ports. Called again after an error. */
  listening?: (() => Promise<void>) | undefined;
};

const min_backoff_ms = 100;
const max_backoff_ms = 5000;
/** A host that ran this long was healthy, so it is restarted after the shortest delay. */
const healthy_ms = 10_000;
/** `start` waits at most this long for the functions. */
const patience_ms = 30_000;

function isAlive({exitCode, signalCode}: ChildProcess): boolean {
  return exitCode === null && signalCode === null;
}

/** The process that runs the functions. It is started again whenever it ends. */
export class FunctionHost {
  readonly #options: FunctionHostOptions;
  #ports = new Map<string, number>();
  #child: ChildProcess | undefined;
  #timer: NodeJS.Timeout | undefined;
  #failures = 0;
  #isClosing = false;
  /** Error of the latest call of `listening`. */
  #trouble: Error | undefined;

  constructor(options: FunctionHostOptions) {
    this.#options = options;
  }

  /**
   * Resolves when the functions listen, when their first start fails, or when `patience` ends. Rejects if `patience` ends while they listen
   * but `listening` has not succeeded.
   */
  start(patience = AbortSignal.timeout(patience_ms)): Promise<void> {
    return new Promise((resolve, reject) => {
      patience.addEventListener('abort', () => (this.#trouble ? reject(this.#trouble) : resolve()));
      this.#launch(resolve);
    });
  }

  portOf(name: string): number | undefined {
    return this.#ports.get(name);
  }

  async stop(): Promise<void> {
    this.#isClosing = true;
    clearTimeout(this.#timer);
    const child = this.#child;
    if (!child || !isAlive(child)) return;
    await new Promise<void>(resolve => {
      child.once('exit', () => resolve());
      child.kill('SIGKILL');
    });
  }

  #launch(settled: () => void): void {
    const {entry, module, env, triggers, log} = this.#options;
    const started = Date.now();
    // The child has its own session, because the emulator handles Ctrl-C in the terminal. It ends with the IPC channel.
    const child = fork(entry, [module, ...triggers.map(({name}) => name)], {
      env: withDirectLoopback({...(process.env as Record<string, string>), ...env()}),
      detached: true,
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    });
    this.#child = child;
    for (const stream of [child.stdout, child.stderr]) {
      if (stream) createInterface({input: stream as Readable}).on('line', line => log(sourceStack(line)));
    }
    child.on('message', message => {
      this.#ports = new Map(Object.entries((message as {ports: Record<string, number>}).ports));
      void this.#connect(child, settled);
    });
    child.on('error', error => log(`the function host failed: ${error.message}`));
    child.once('exit', (code, signal) => {
      this.#ports = new Map();
      settled();
      if (this.#isClosing) return;
      this.#failures = Date.now() - started > healthy_ms ? 1 : this.#failures + 1;
      const delay_ms = Math.min(max_backoff_ms, min_backoff_ms * 2 ** (this.#failures - 1));
      log(`the function host ended (${signal ?? `exit ${code}`}); starting it again in ${delay_ms} ms`);
      this.#timer = setTimeout(() => this.#launch(() => {}), delay_ms);
    });
  }

  /** Calls `listening` until it succeeds or the process ends. */
  async #connect(child: ChildProcess, settled: () => void): Promise<void> {
    const {listening, log} = this.#options;
    for (let attempt = 0; child === this.#child && isAlive(child) && !this.#isClosing; attempt++) {
      try {
        await listening?.();
        this.#trouble = undefined;
        log(`functions ready: ${[...this.#ports.keys()].join(', ')}`);
        return settled();
      } catch (error) {
        this.#trouble = new LocalCloudError(
          'emulator-failed',
          `Failed to connect the functions to their topics: ${(error as Error).message}; start the local cloud again`,
          {cause: error},
        );
        const delay_ms = Math.min(max_backoff_ms, min_backoff_ms * 2 ** attempt);
        log(`the functions are not connected (${(error as Error).message}); trying again in ${delay_ms} ms`);
        await sleep(delay_ms, undefined, {ref: false});
      }
    }
  }

  /** Routes of HTTP functions under `/functions/`, which browsers and workers call, each under its exact name in the deployment. */
  routes(): Route[] {
    return httpFunctions(this.#options.triggers).flatMap(name => {
      const path = `/functions/${nameIn(this.#options.deployment, name)}`;
      const proxy = (request: Request) => this.#proxy(name, path, request);
      return [['*', path, proxy] as const, ['*', `${path}/{rest...}`, proxy] as const];
    });
  }

  #proxy(name: string, path: string, request: Request): Promise<Reply> {
    const port = this.portOf(name);
    const away = (cause?: unknown) =>
      new ApiError(503, `The host of ${name} is starting; try again`, {cause});
    if (port === undefined) throw away();
    const {host: _host, connection: _connection, ...others} = request.headers;
    const headers = {...others, [HOST_HEADER]: this.#options.token};
    const rest = request.path.slice(path.length) || '/';
    const search = request.query.size > 0 ? `?${request.query}` : '';
    return new Promise((resolve, reject) => {
      const target = {host: '127.0.0.1', port, path: rest + search, agent: toFunctions};
      const options = {...target, method: request.method, headers};
      const upstream = httpRequest(options, response => {
        const {
          connection: _hop,
          'keep-alive': _alive,
          'transfer-encoding': _chunked,
          ...kept
        } = response.headers;
        resolve({status: response.statusCode ?? 502, headers: kept, body: response});
      });
      upstream.once('error', error => reject(away(error)));
      request.signal.addEventListener('abort', () => upstream.destroy());
      request.body.pipe(upstream);
    });
  }
}
