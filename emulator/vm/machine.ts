import {type ChildProcess, spawn} from 'node:child_process';
import {closeSync, openSync} from 'node:fs';
import type {Socket} from 'node:net';

export type MachineOptions = {
  /** The file to run. */
  script: string;
  cwd: string;
  env: Record<string, string>;
  /** Everything the group prints is appended here. */
  log_file: string;
};

/**
 * The first process of the group leaves a watcher behind that waits at the end of a pipe from us. When the pipe breaks,
 * because we died or let go of it, the watcher kills the group it is in: a VM cannot outlive its cloud, not even by
 * `kill -9`. While the watcher lives the group's number cannot be given to another, so a kill never hits a stranger.
 */
const powerUp = `
(trap '' HUP INT TERM; exec </dev/null >/dev/null 2>&1; read -r _ <&3; kill -KILL 0) &
exec 3<&-
exec "$1"
`;

/** A fake VM that is switched on: one process group, and everything it starts. */
export class Machine {
  readonly #child: ChildProcess;
  readonly pid: number | undefined;
  /** The whole group is gone. */
  readonly off: Promise<void>;
  /** How the startup script ended; the group may live on without it. */
  readonly scriptEnd: Promise<string>;
  #isOn = true;

  constructor({script, cwd, env, log_file}: MachineOptions) {
    const log = openSync(log_file, 'a');
    this.#child = spawn('/bin/bash', ['-c', powerUp, 'vm', script], {
      cwd,
      env,
      detached: true,
      stdio: ['ignore', log, log, 'pipe'],
    });
    closeSync(log);
    this.pid = this.#child.pid;
    const power = this.#child.stdio[3] as Socket;
    this.scriptEnd = new Promise(resolve => {
      this.#child.once('exit', (code, signal) => resolve(signal ?? `exit code ${code}`));
      this.#child.once('error', error => resolve(error.message));
    });
    this.off = new Promise(resolve => {
      power.on('error', () => {});
      power.once('close', () => {
        // The watcher is gone. If someone killed it alone, the others follow: a VM without power.
        this.#signal('SIGKILL');
        this.#isOn = false;
        resolve();
      });
    });
    power.resume();
  }

  get isOn(): boolean {
    return this.#isOn;
  }

  /** Cuts the power. */
  async kill(): Promise<void> {
    this.#signal('SIGKILL');
    await this.off;
  }

  /** The operating system's polite end: every process is told, none is forced. */
  terminate(): void {
    this.#signal('SIGTERM');
  }

  #signal(signal: NodeJS.Signals): void {
    if (!this.#isOn || this.pid === undefined) return;
    try {
      process.kill(-this.pid, signal);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
    }
  }
}
