/** The host of functions, without a cloud. */
import {type ChildProcess, fork} from 'node:child_process';
import {once} from 'node:events';
import {setTimeout as sleep} from 'node:timers/promises';
import {fileURLToPath} from 'node:url';
import {HOST_HEADER} from '../../emulator/http/guard.ts';

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));
/** No server listens on this port. */
const NOWHERE = '127.0.0.1:9';
const TOKEN = 'secret';

/** Settings of the real functions, with clients that reach no service. */
const settings = {
  GLEANER_LOCAL_TOKEN: TOKEN,
  GLEANER_PROJECT: 'my-project',
  GLEANER_BUCKET: 'my-bucket',
  GLEANER_WORKER_API: `http://${NOWHERE}/worker-api`,
  GLEANER_BUNDLE: 'c'.repeat(64),
  GLEANER_STORAGE_ENDPOINT: `http://${NOWHERE}`,
  GLEANER_TPU_ENDPOINT: `http://${NOWHERE}`,
  GLEANER_BILLING_ENDPOINT: `http://${NOWHERE}`,
  PUBSUB_EMULATOR_HOST: NOWHERE,
  FIRESTORE_EMULATOR_HOST: NOWHERE,
  METADATA_SERVER_DETECTION: 'none',
};

/** The real functions in a process of their own. */
export class Host {
  readonly #child: ChildProcess;
  readonly #ports: Record<string, number>;
  #said = '';

  private constructor(child: ChildProcess, ports: Record<string, number>) {
    this.#child = child;
    this.#ports = ports;
    for (const stream of [child.stdout, child.stderr]) stream?.on('data', chunk => (this.#said += chunk));
  }

  static async start(names: string[], env: Record<string, string>): Promise<Host> {
    const args = [here('../../functions/index.ts'), ...names];
    const child = fork(here('../../emulator/functions/function-host.ts'), args, {
      env: {...process.env, ...settings, ...env},
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    });
    const [{ports}] = (await once(child, 'message')) as [{ports: Record<string, number>}];
    return new Host(child, ports);
  }

  /** Pushes a body to a function, and returns the status of the answer and the log of the call. */
  async push(name: string, body: unknown): Promise<{status: number; log: string}> {
    this.#said = '';
    const answer = await fetch(`http://127.0.0.1:${this.#ports[name]}/projects/my-project/topics/x`, {
      method: 'POST',
      headers: {'content-type': 'application/json', [HOST_HEADER]: TOKEN},
      body: JSON.stringify(body),
    });
    // The log arrives through a pipe, a moment later than the answer.
    for (let waits = 0; this.#said === '' && waits < 50; waits++) await sleep(10);
    return {status: answer.status, log: this.#said};
  }

  stop(): void {
    this.#child.kill('SIGKILL');
  }
}
