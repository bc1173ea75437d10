/** Checks commands on hosts: each living worker of the target runs the command at most once, and each host has one result. */

import {paths} from '../../../shared/domain/names.ts';
import {type Exec, type ExecHost, hasHostEnded} from '../../../shared/domain/records/exec.ts';
import {isAlive, type Worker} from '../../../shared/domain/records/worker.ts';
import type {Document} from '../../../shared/ports/ports.ts';
import {MAX_HANG_MINUTES, MAX_SKEW_MS} from '../conditions/faults.ts';
import {workersOf} from './nodes.ts';
import {Check, type WorkerRequest} from './violations.ts';

/** Time that a host has to take a command, and time after the deadline for its report, repeated here. */
const START_S = 300;
const REPORT_S = 60;

export type ExecOrder = {exec: string; target: string; argv: string[]; timeout_s: number};

export class Execs extends Check {
  /** Commands that were sent, by the id of their message. */
  readonly #sent = new Map<string, ExecOrder>();
  /** Commands that a lost Store has not lost, by the id of their message. */
  readonly #expected = new Map<string, string>();
  /** Incarnations of the target that lived when the command got its document. */
  readonly #living = new Map<string, string[]>();
  /** Runs that an agent started, as `exec on worker#incarnation`. */
  readonly #started = new Set<string>();
  /** Since when each incarnation lives. */
  readonly #alive_ms = new Map<string, number>();
  /** Commands that each heartbeat must name: they were open when it arrived. */
  readonly #due = new WeakMap<WorkerRequest, string[]>();

  onSent(message_id: string, order: ExecOrder): void {
    this.#sent.set(message_id, order);
    this.#expected.set(message_id, order.exec);
  }

  /** An agent starts the command that worker-api gave to it. */
  onStarted(exec: string, worker: string, incarnation: number, host: number): void {
    const run = `${exec} on host ${host} of ${worker}#${incarnation}`;
    const given = this.context.store.peek(paths.execHost(exec, worker, host));
    if (this.#started.has(run)) this.breach(`${run} is started twice`);
    this.#started.add(run);
    if (given && given.incarnation !== incarnation)
      this.breach(`${run} is started, and was meant for incarnation ${given.incarnation}`);
  }

  override onRequest(request: WorkerRequest): void {
    if (request.action === 'heartbeat') this.#due.set(request, this.#openOn(request));
  }

  /** A heartbeat names the commands that its worker has to run. */
  onAnswer(request: WorkerRequest, {execs}: Document): void {
    if (!Array.isArray(execs)) return;
    const open = this.#openOn(request);
    for (const exec of this.#due.get(request) ?? [])
      if (open.includes(exec) && !execs.includes(exec))
        this.breach(`${request.worker} is not told of ${exec} by a heartbeat`);
  }

  /** Commands that have not ended on the host of the worker. */
  #openOn({worker, incarnation, host: number = 0}: WorkerRequest): string[] {
    const {store} = this.context;
    const open = store.collection('execs').filter(({id, data}) => {
      const host = store.peek(paths.execHost(id, worker, number)) as ExecHost | undefined;
      return data.status === 'running' && host?.incarnation === incarnation && !hasHostEnded(host);
    });
    return open.map(({id}) => id);
  }

  onExec(path: string, before: Document | undefined, after: Document): void {
    const exec = after as unknown as Exec;
    this.context.see(`a command is: ${exec.status}`);
    if (before === undefined) this.#checkNew(path, exec);
    else if (before.status !== 'running' && JSON.stringify(before) !== JSON.stringify(after))
      this.breach(`${path} was ${before.status}, and has changed`);
    else if (exec.message_id !== before.message_id) this.breach(`${path} belongs to another message`);
    if (exec.status === 'done') this.#checkDone(path, exec);
    if (exec.is_assigned && before?.is_assigned !== true) this.#checkAssigned(path, exec);
  }

  #checkNew(path: string, {exec, target, argv, timeout_s, message_id, status, ...times}: Exec): void {
    const sent = this.#sent.get(message_id);
    const given: ExecOrder = {exec, target, argv, timeout_s};
    if (!this.violations.isBy('exec') || JSON.stringify(sent) !== JSON.stringify(given))
      this.breach(`${path} has ${JSON.stringify(given)}, and the message is ${JSON.stringify(sent)}`);
    const limit_s = (Date.parse(times.deadline_at) - Date.parse(times.created_at)) / 1000;
    if (limit_s !== timeout_s + START_S) this.breach(`${path} of ${timeout_s} s has ${limit_s} s`);
    const {clockwork, storm, store} = this.context;
    const {now} = clockwork;
    const living = workersOf(store).filter(worker => isAlive(worker) && isOf(target, worker));
    // The workers are read before the command has its document.
    const since = now - (storm.hang > 0 ? MAX_HANG_MINUTES : 1) * 60_000;
    const known = living.map(nameOf).filter(name => (this.#alive_ms.get(name) ?? now) < since);
    this.#living.set(path, known);
    const isOld = ({phase_since_at}: Worker) => now - Date.parse(phase_since_at) > MAX_HANG_MINUTES * 60_000;
    if (status === 'rejected' && living.some(isOld))
      this.breach(`${path} is rejected (${times.reason}), and ${living.map(nameOf)} live`);
  }

  /** Each worker that still lives has the command. */
  #checkAssigned(path: string, {exec}: Exec): void {
    const living = this.#living.get(path) ?? [];
    for (const worker of workersOf(this.context.store)) {
      const isMeant = living.includes(nameOf(worker)) && isAlive(worker);
      if (isMeant && !this.context.store.peek(paths.execHost(exec, worker.name, 0)))
        this.breach(`${path} is assigned, and ${nameOf(worker)} has not got it`);
    }
  }

  /** The counts of an ended command are those of its hosts. */
  #checkDone(path: string, {exec, hosts, hosts_done, hosts_failed, completed_at}: Exec): void {
    const all = this.#hostsOf(exec);
    const failed = all.filter(({status, exit_code}) => status !== 'exited' || exit_code !== 0).length;
    const ended = all.filter(hasHostEnded).length;
    if ([hosts, hosts_done, hosts_failed].join() !== [all.length, ended, failed].join() || !completed_at)
      this.breach(
        `${path} counts ${[hosts, hosts_done, hosts_failed]}, and its hosts ${[all.length, ended, failed]}`,
      );
    if (ended < all.length) this.breach(`${path} is done, and ${all.length - ended} hosts are open`);
  }

  #hostsOf(exec: string): ExecHost[] {
    return this.context.store.collection(paths.execHosts(exec)).map(({data}) => data as unknown as ExecHost);
  }

  onHost(path: string, before: Document | undefined, after: Document): void {
    const host = after as unknown as ExecHost;
    this.context.see(`a command on a host is: ${host.status}`);
    const [, id = ''] = path.split('/');
    const exec = this.context.store.peek(paths.exec(id)) as Exec | undefined;
    const worker = this.context.store.peek(paths.worker(host.worker)) as unknown as Worker | undefined;
    if (hasHostEnded(host) !== (host.ended_at !== null))
      this.breach(`${path} is ${host.status}, and ended at ${host.ended_at}`);
    if (before === undefined) {
      const isMeant = worker?.incarnation === host.incarnation && isAlive(worker) && exec;
      if (!isMeant || !isOf(exec.target, worker) || !this.violations.isBy('exec'))
        this.breach(`${path} was given to ${host.worker}#${host.incarnation}, for ${exec?.target}`);
      return;
    }
    const was = before as unknown as ExecHost;
    if (hasHostEnded(was)) this.breach(`${path} was ${was.status}, and is ${host.status}`);
    if (host.status === 'lost') this.#checkLost(path, was, exec, worker);
    else this.#checkReport(path, was, host, exec);
  }

  /** A host is given up only after its deadline, or after the end of its worker. */
  #checkLost(path: string, host: ExecHost, exec: Exec | undefined, worker: Worker | undefined): void {
    const late_ms = this.context.clockwork.now - Date.parse(exec?.deadline_at ?? '');
    const isGone = !worker || worker.incarnation !== host.incarnation || !isAlive(worker);
    if (!isGone && !(late_ms > REPORT_S * 1000 - MAX_SKEW_MS))
      this.breach(`${path} is lost ${late_ms} ms after its deadline, and ${host.worker} lives`);
  }

  /** A host speaks for itself, and its result is the one that it reports. */
  #checkReport(path: string, was: ExecHost, {status, exit_code}: ExecHost, exec: Exec | undefined): void {
    const {request} = this.violations;
    const action = status === 'running' ? 'exec' : 'exec-end';
    const isOwn = request?.worker === was.worker && request.incarnation === was.incarnation;
    if (!isOwn || request.action !== action || request.exec !== exec?.exec)
      this.breach(`${path} is ${status} by ${JSON.stringify(request)}`);
    if (status === 'exited' && exit_code !== Number(exec?.argv[1]))
      this.breach(`${path} of ${exec?.argv} has exit code ${exit_code}`);
  }

  /** A worker is told of a command as long as one of its hosts has not ended it. */
  override onCommitted(changed: readonly string[]): void {
    for (const path of changed) {
      const [collection, name = '', ...below] = path.split('/');
      if (collection === 'workers' && below.length === 0) this.#checkTold(name);
      if (collection === 'execs' && below.length > 0)
        this.#checkTold(below.at(-1)?.replace(/\.\d+$/, '') ?? '');
    }
  }

  #checkTold(name: string): void {
    const {store} = this.context;
    const worker = store.peek(paths.worker(name)) as unknown as Worker | undefined;
    if (!worker || !isAlive(worker)) return;
    const {now} = this.context.clockwork;
    this.#alive_ms.set(nameOf(worker), this.#alive_ms.get(nameOf(worker)) ?? now);
    for (const {id, data} of store.collection('execs')) {
      const hosts = this.#hostsOf(id).filter(
        host => host.worker === name && host.incarnation === worker.incarnation,
      );
      const isOpen = hosts.some(host => !hasHostEnded(host));
      const isTold = worker.execs?.includes(id) ?? false;
      if (isTold && !isOpen)
        this.breach(`${name} is told of ${id}, which is ${hosts.map(({status}) => status)} there`);
      if (!isTold && isOpen && data.status === 'running') this.breach(`${name} is not told of ${id}`);
    }
  }

  override onWipe(): void {
    for (const known of [this.#expected, this.#living]) known.clear();
  }

  override atTheEnd(): void {
    const {store} = this.context;
    for (const [id, exec] of this.#expected) {
      const found = store.peek(paths.exec(exec)) as Exec | undefined;
      if (!found || found.status === 'running') this.breach(`${exec} of message ${id} is ${found?.status}`);
      const isRejected = store.peek(paths.control(id))?.outcome === 'rejected';
      if ((found?.message_id === id) === isRejected)
        this.breach(
          `message ${id} has ${isRejected ? 'a rejection' : 'no rejection'}, and ${exec} is ${found?.message_id}`,
        );
    }
  }
}

function isOf(target: string, {name, pool}: Worker): boolean {
  return target === 'all' || target === pool || target === name;
}

function nameOf({name, incarnation}: Worker): string {
  return `${name}#${incarnation}`;
}
