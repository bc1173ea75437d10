import {setTimeout as sleep} from 'node:timers/promises';
import {type Cloud, withCloud} from '../../client/cloud/cloud.ts';
import {aliveIn, readFleet} from '../../client/cloud/fleet.ts';
import {POLL_MS, publish, publishLine, readOutcome} from '../../client/cloud/send-message.ts';
import type {CloudOptions} from '../../client/connection/connect.ts';
import {CliError, Interrupted} from '../../client/text/errors.ts';
import {counted} from '../../client/text/format.ts';
import {print, printText, say} from '../../client/text/output.ts';
import {type Parts, partsIn} from '../../client/text/output-parts.ts';
import {execMessage} from '../../shared/contracts/messages/job-schemas.ts';
import {parseValue} from '../../shared/contracts/messages/schemas.ts';
import {execHostRecords, execRecords} from '../../shared/control-plane/documents/documents.ts';
import {execFolder, paths} from '../../shared/domain/names.ts';
import {type Exec, type ExecHost, hasHostEnded} from '../../shared/domain/records/exec.ts';
import {newId, sender} from '../jobs/submit.ts';
import {abortedAtStop} from '../terminal/stop-signal.ts';

type ExecOptions = CloudOptions & {shell?: boolean; timeout: number};

/** Time for on-exec to make the document, and for a tick to end an overdue command after its deadline. */
const START_S = 120;
const END_S = 300;
const SAY_AFTER_MS = 5000;

/** Runs a command on every host of the target, and prints the output of all. Exit code 1: a host did not end with 0. */
export async function exec(target: string, words: string[], options: ExecOptions): Promise<void> {
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
    const look = watchExec(cloud, message.exec, options.json ? say : line => printText([line]));
    let seen = await look(await untilStarted(cloud, message.exec, message_id, stopped));
    for (; seen.exec.status === 'running'; seen = await look(seen.exec)) {
      if (stopped.aborted)
        throw new Interrupted(
          `Interrupted: the command goes on until its timeout of ${timeout_s} s; its output is in ${seen.exec.output_path}`,
        );
      await sleep(POLL_MS);
    }
    const {exec: ended, hosts} = seen;
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

/** Waits for the document of the command. Throws `CliError` with the reason of a rejected one. */
async function untilStarted({store}: Cloud, id: string, message_id: string, stopped: AbortSignal) {
  for (const end = Date.now() + START_S * 1000; Date.now() < end; await sleep(POLL_MS)) {
    const exec = await execRecords.get(store, id);
    if (exec && exec.status !== 'rejected') return exec;
    const {outcome, reason} = (await readOutcome(store, message_id)) ?? {};
    if (exec || outcome === 'rejected')
      throw new CliError(`The command was rejected: ${exec?.reason ?? reason}`);
    if (stopped.aborted)
      throw new Interrupted('Interrupted: the command is published, and may run until its timeout');
  }
  throw new CliError(
    `The control plane has not answered message ${message_id} for ${START_S} s: read the log of the function on-exec`,
  );
}

/** Returns a function that prints what is new, and returns the documents of the command and of its hosts. */
function watchExec(cloud: Cloud, id: string, writeLine: (line: string) => void) {
  const {store, objects} = cloud;
  const outputs = new Map<string, Parts>();
  const ended = new Set<string>();
  let moved_ms = Date.now();
  let poll_s: number | undefined;
  const printHost = async (host: ExecHost, width: number) => {
    const name = `${host.worker}/${host.host}`;
    if (ended.has(name)) return;
    const write = (line: string) => {
      moved_ms = Date.now();
      writeLine(`${name.padEnd(width)} | ${line}`);
    };
    const parts = outputs.get(name) ?? partsIn(objects, execFolder(id, host.worker, host.host), write);
    outputs.set(name, parts);
    if (!hasHostEnded(host)) return parts.read();
    await parts.end();
    ended.add(name);
    moved_ms = Date.now();
  };
  const sayWaiting = async (hosts: readonly ExecHost[]) => {
    if (Date.now() - moved_ms < SAY_AFTER_MS) return;
    moved_ms = Date.now();
    const waiting = hosts.filter(({status}) => status === 'waiting');
    const running = hosts.filter(({status}) => status === 'running').length;
    poll_s ??= (await readFleet(cloud)).pools[0]?.poll_s;
    const names = waiting.map(({worker, host}) => `${worker}/${host}`).join(', ');
    say(
      waiting.length > 0
        ? `waiting for ${names}: workers ask every ${poll_s ?? 'few'} s`
        : `the command runs on ${counted(running, 'host')}`,
    );
  };
  return async (known: Exec): Promise<{exec: Exec; hosts: ExecHost[]}> => {
    // The documents are read before the output: the output of an ended host is complete.
    const exec = (await execRecords.get(store, id)) ?? known;
    const hosts = execHostRecords.parseAll(await store.query(paths.execHosts(id)), (_, text) => say(text));
    const width = Math.max(0, ...hosts.map(({worker, host}) => `${worker}/${host}`.length));
    for (const host of hosts) await printHost(host, width);
    if (exec.status === 'running' && Date.now() > Date.parse(exec.deadline_at) + END_S * 1000)
      throw new CliError(
        `The command ${id} still runs ${END_S} s after its deadline: read the log of the function on-tick`,
      );
    if (exec.status === 'running') await sayWaiting(hosts);
    return {exec, hosts};
  };
}
