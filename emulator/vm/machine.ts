import {type ChildProcess, spawn} from 'node:child_process';
import {closeSync, openSync} from 'node:fs';
import type {Socket} from 'node:net';

export type MachineOptions = {
  /** Program that the boot runs. */
  script: string;
  args?: string[];
  cwd: string;
  env: Record<string, string>;
  /** File for the output of every process of the VM; a boot appends to it. */
  log_file: string;
};

/**
 * Boot command. Its first process starts a watcher that reads a pipe from the cloud. When the pipe closes, even after a `kill -9` of the
 * cloud, the watcher kills its process group, so a VM never outlives its cloud. While the watcher lives, the number of the group stays in
 * use, so a kill never hits another group. The guards of jobs have their own sessions, and end with the agent.
 */
const bootCommand = `
(
  trap '' HUP INT TERM
  exec </dev/null >/dev/null 2>&1
  read -r _ <&3
  exec 3<&-
  kill -KILL 0
) &
exec 3<&-
umask 022
exec "$@"
`;

/** A running VM: one process group on this machine. */
export class Machine {
  readonly #child: ChildProcess;
  readonly pid: number | undefined;
  /** Resolves when every process of the group has ended. The guard of a job sees this end within milliseconds. */
  readonly off: Promise<void>;
  /** Resolves with the end of the startup script: a signal or an exit code. Background processes may still run. */
  readonly scriptEnd: Promise<string>;
  #isOn = true;

  constructor({script, args = [], cwd, env, log_file}: MachineOptions) {
    const log = openSync(log_file, 'a');
    this.#child = spawn('/bin/bash', ['-c', bootCommand, 'vm', script, ...args], {
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
        // The watcher has ended. If only the watcher was killed, this kill ends the other processes.
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

  /** Kills every process of the group. */
  async kill(): Promise<void> {
    this.#signal('SIGKILL');
    await this.off;
  }

  /** Sends SIGTERM to every process of the group. */
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
