import {type ChildProcess, spawn} from 'node:child_process';
import {closeSync, openSync} from 'node:fs';
import type {Socket} from 'node:net';

export type MachineOptions = {
  /** Program that the boot runs. */
  script: string;
  args?: string[];
  cwd: string;
  env: Record<string, string>;
  /** User that only processes of this VM have: all of them end with the VM, in any session. */
  job_uid?: number | undefined;
  /** File for the output of every process of the VM; a boot appends to it. */
  log_file: string;
};

/**
 * Boot command. Its first process starts a watcher that reads a pipe from the cloud. When the pipe closes, also after a
 * `kill -9` of the cloud, the watcher kills its process group: a VM never outlives its cloud. The watcher keeps the number of
 * the group in use, so a kill never hits another group. Jobs have sessions of their own, so a process outside of the group kills
 * every process of their user.
 */
const bootCommand = `
uid=$1 end_user=$2
shift 2
(
  trap '' HUP INT TERM
  exec </dev/null >/dev/null 2>&1
  read -r _ <&3
  exec 3<&-
  # The line says that the process has left the group.
  [[ -z $uid ]] || read -r _ < <(
    exec setsid bash -c 'echo; exec >/dev/null; eval "$1"' end "$end_user" "$uid"
  )
  kill -KILL 0
) &
exec 3<&-
umask 022
exec "$@"
`;

/**
 * Kills every process of user $2, by a call that no fork escapes: kill(-1) of a process of this user, which reaches no other. The
 * later calls end what a dying agent has just started.
 */
const endUser = `
for ((calls = 0; calls < 5; calls++)); do
  setpriv --reuid "$2" --regid "$2" --clear-groups bash -c 'kill -KILL -1'
  sleep 0.05
done
`;

function endProcessesOf(uid: number): Promise<void> {
  const child = spawn('/bin/bash', ['-c', endUser, 'end', '', String(uid)], {stdio: 'ignore'});
  return new Promise(resolve => {
    child.once('exit', () => resolve());
    child.once('error', () => resolve());
  });
}

/** A running VM: one process group on this machine, and the processes of the user of its jobs. */
export class Machine {
  readonly #child: ChildProcess;
  readonly pid: number | undefined;
  /** Resolves when every process of the VM has ended. */
  readonly off: Promise<void>;
  /** Resolves with the end of the startup script: a signal or an exit code. Background processes may still run. */
  readonly scriptEnd: Promise<string>;
  #isOn = true;

  constructor({script, args = [], cwd, env, job_uid, log_file}: MachineOptions) {
    const log = openSync(log_file, 'a');
    const user = [job_uid === undefined ? '' : String(job_uid), endUser];
    this.#child = spawn('/bin/bash', ['-c', bootCommand, 'vm', ...user, script, ...args], {
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
        // The watcher has ended. This kill ends the other processes after a kill of the watcher alone.
        this.#signal('SIGKILL');
        this.#isOn = false;
        if (job_uid === undefined) resolve();
        else void endProcessesOf(job_uid).then(resolve);
      });
    });
    power.resume();
  }

  get isOn(): boolean {
    return this.#isOn;
  }

  /** Kills every process of the VM. */
  async kill(): Promise<void> {
    this.#signal('SIGKILL');
    await this.off;
  }

  /** Sends SIGTERM to every process of the VM. */
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
