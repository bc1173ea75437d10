import {setTimeout as sleep} from 'node:timers/promises';
import {type Cloud, withCloud} from '../../client/cloud/cloud.ts';
import {aliveIn, readFleet} from '../../client/cloud/fleet.ts';
import {POLL_MS, publish, publishLine, readOutcome} from '../../client/cloud/send-message.ts';
import type {CloudOptions} from '../../client/connection/connect.ts';
import {CliError, Interrupted} from '../../client/text/errors.ts';
import {counted} from '../../client/text/format.ts';
import {print, printText, say} from '../../client/text/output.ts';
import {Parts} from '../../client/text/output-parts.ts';
import {execMessage} from '../../shared/contracts/messages/job-schemas.ts';
import {parseValue} from '../../shared/contracts/messages/schemas.ts';
import {execHostRecords, execRecords} from '../../shared/control-plane/documents/documents.ts';
import {execFolder, paths} from '../../shared/domain/names.ts';
import type {Exec, ExecHost} from '../../shared/domain/records/exec.ts';
import {hasHostEnded} from '../../shared/domain/records/exec.ts';
import {newId, sender} from '../jobs/submit.ts';
import {abortedAtStop} from '../terminal/stop-signal.ts';

type Options = CloudOptions & {shell?: boolean; timeout: number};

/** Time for on-exec to make the document, and for a tick to end an overdue command after its deadline. */
const START_S = 120;
const END_S = 300;
const SAY_AFTER_MS = 5000;

/** Runs a command on every host of the target, and prints the output of all. Exit code 1: a host did not end with 0. */
export async function exec(target: string, words: string[], options: Options): Promise<void> {
  const {shell = false, timeout: timeout_s} = options;
  const argv = shell ? [words.join(' ')] : words;
  const message = {exec: newId(), target, argv, shell, timeout_s, requested_by: sender()};
  parseValue(execMessage, message, 'The command');
  await withCloud(options, async cloud => {
    const command = publishLine(cloud.connection, 'exec', message);
    if (options.dry_run) return print<'exec'>(options.json, {exec: message.exec, command}, [command]);
    aliveIn(await readFleet(cloud), target);
    const message_id = await publish(cloud, 'exec', message);
    const stopped = abortedAtStop();
    const watch = new Watch(cloud, message.exec, options.json ? say : line => printText([line]));
    await watch.started(message_id, stopped);
    while (!(await watch.look())) {
      if (stopped.aborted)
        throw new Interrupted(
          `Interrupted: the command goes on until its timeout of ${timeout_s} s; its output is in ${watch.exec?.output_path}`,
        );
      await sleep(POLL_MS);
    }
    const {exec: ended, hosts} = watch;
    if (!ended) throw new CliError(`There is no document of the command ${message.exec}: run it again`);
    print<'exec'>(options.json, {...ended, results: hosts}, hosts.map(endLine));
    const isGood =
      hosts.length > 0 && hosts.every(({status, exit_code}) => status === 'exited' && exit_code === 0);
    if (!isGood) process.exitCode = 1;
  });
}

function endLine({worker, host, status, exit_code, error}: ExecHost): string {
  const end = status === 'exited' ? `exit code ${exit_code}` : status;
  return `${worker}/${host}  ${end}${error ? `: ${error}` : ''}`;
}

/** Output and documents of one command. */
class Watch {
  exec: Exec | undefined;
  hosts: ExecHost[] = [];
  readonly #cloud: Cloud;
  readonly #id: string;
  readonly #write: (line: string) => void;
  readonly #parts = new Map<string, Parts>();
  readonly #ended = new Set<string>();
  #moved_ms = Date.now();
  #poll_s: number | undefined;

  constructor(cloud: Cloud, id: string, write: (line: string) => void) {
    this.#cloud = cloud;
    this.#id = id;
    this.#write = write;
  }

  /** Waits for the document of the command. Throws `CliError` with the reason of a rejected one. */
  async started(message_id: string, stopped: AbortSignal): Promise<void> {
    const {store} = this.#cloud;
    for (const end = Date.now() + START_S * 1000; Date.now() < end; await sleep(POLL_MS)) {
      this.exec = await execRecords.get(store, this.#id);
      if (this.exec?.status === 'rejected')
        throw new CliError(`The command is rejected: ${this.exec.reason}`);
      if (this.exec) return;
      const refused = await readOutcome(store, message_id);
      if (refused?.outcome === 'rejected') throw new CliError(`The command is rejected: ${refused.reason}`);
      if (stopped.aborted)
        throw new Interrupted('Interrupted: the command is published, and may run until its timeout');
    }
    throw new CliError(
      `There is no record of message ${message_id} after ${START_S} s: read the log of the function on-exec`,
    );
  }

  /** Prints what is new. True at the end of the command. */
  async look(): Promise<boolean> {
    const {store} = this.#cloud;
    // The documents are read before the output: the output of an ended host is complete.
    this.exec = (await execRecords.get(store, this.#id)) ?? this.exec;
    const found = execHostRecords.parseAll(await store.query(paths.execHosts(this.#id)), (_, text) =>
      say(text),
    );
    const width = Math.max(0, ...found.map(({worker, host}) => `${worker}/${host}`.length));
    for (const host of found) await this.#print(host, width);
    this.hosts = found;
    if (this.exec && this.exec.status !== 'running') return true;
    if (this.exec && Date.now() > Date.parse(this.exec.deadline_at) + END_S * 1000)
      throw new CliError(
        `The command ${this.#id} runs ${END_S} s after its deadline: read the log of the function on-tick`,
      );
    await this.#sayWaiting();
    return false;
  }

  async #print(host: ExecHost, width: number): Promise<void> {
    const name = `${host.worker}/${host.host}`;
    if (this.#ended.has(name)) return;
    const folder = execFolder(this.#id, host.worker, host.host);
    const write = (line: string) => {
      this.#moved_ms = Date.now();
      this.#write(`${name.padEnd(width)} | ${line}`);
    };
    const parts = this.#parts.get(name) ?? new Parts(this.#cloud.objects, folder, write);
    this.#parts.set(name, parts);
    if (!hasHostEnded(host)) return void (await parts.read());
    await parts.end();
    this.#ended.add(name);
    this.#moved_ms = Date.now();
  }

  async #sayWaiting(): Promise<void> {
    if (Date.now() - this.#moved_ms < SAY_AFTER_MS) return;
    this.#moved_ms = Date.now();
    const waiting = this.hosts.filter(({status}) => status === 'waiting');
    const running = this.hosts.filter(({status}) => status === 'running').length;
    this.#poll_s ??= (await readFleet(this.#cloud)).pools[0]?.poll_s;
    const asks = `workers ask every ${this.#poll_s ?? 'few'} s`;
    say(
      waiting.length > 0
        ? `waiting for ${waiting.map(({worker, host}) => `${worker}/${host}`).join(', ')}: ${asks}`
        : `the command runs on ${counted(running, 'host')}`,
    );
  }
}
