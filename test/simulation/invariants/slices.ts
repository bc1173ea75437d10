/** Checks slices of several hosts: host 0 alone leases, an attempt begins on ready hosts, and every host has one end of it. */
import {hostsOfType} from '../../../shared/domain/fleet/accelerators.ts';
import {parseJobWork} from '../../../shared/domain/names.ts';
import type {Job} from '../../../shared/domain/records/job.ts';
import type {Document} from '../../../shared/ports/ports.ts';
import {MAX_SKEW_MS} from '../conditions/faults.ts';
import {workersOf} from './nodes.ts';
import {wordOf} from './silence.ts';
import {Check, type WorkerRequest} from './violations.ts';

/** Time after the limit of silence until a tick has deleted a silent slice. */
const TICKS_MS = 150_000;

/** Time for which an attempt waits for the true cause after a host that lost a peer, until the next tick. */
const PEERS_MS = 4 * 60_000;

export class Slices extends Check {
  /** Jobs with a host that has lost a peer, and since when. */
  readonly #waits = new Map<string, number>();

  onWorker(name: string, before: Document, after: Document): void {
    const hosts = Number(after.host_count ?? 1);
    if (hosts === 1 || after.incarnation !== before.incarnation) return;
    const {request} = this.violations;
    const isGrant = after.work !== null && (after.work !== before.work || after.epoch !== before.epoch);
    if (isGrant && Number(request?.host) > 0)
      this.breach(`host ${request?.host} of ${name} leased ${after.work} in epoch ${after.epoch}`);
    if (isGrant) this.#checkReady(name, before, hosts);
    const isUp = after.phase === 'idle' || after.phase === 'working';
    const wasUp = before.phase === 'idle' || before.phase === 'working';
    if (isUp && !wasUp && !this.#areAll(after, hosts, phase => phase !== null && phase !== 'setup'))
      this.breach(`${name} is ${after.phase} before all of its hosts: ${JSON.stringify(after.hosts)}`);
  }

  /** A host that boots again has ended the attempt. */
  override onCommitted(changed: readonly string[]): void {
    for (const path of changed.filter(each => /^workers\/[^/]+$/.test(each))) {
      const worker = this.context.store.peek(path) ?? {};
      const isAtJob = parseJobWork((worker.work ?? null) as string | null) !== undefined;
      if (isAtJob && !this.#areAll(worker, Number(worker.host_count), phase => phase !== 'setup'))
        this.breach(`${path} has ${worker.work}, and a host boots: ${JSON.stringify(worker.hosts)}`);
    }
  }

  #checkReady(name: string, before: Document, hosts: number): void {
    this.context.see('a slice gets an attempt');
    const bound = Object.keys(before.host_secrets as Document).length;
    if (bound !== hosts || !this.#areAll(before, hosts, phase => phase === 'idle'))
      this.breach(`${name} got an attempt with ${bound} hosts, which said ${JSON.stringify(before.hosts)}`);
  }

  /** True if each host but host 0 is in such a phase. */
  #areAll({hosts}: Document, count: number, is: (phase: unknown) => boolean): boolean {
    const known = hosts as Record<string, Document>;
    return Array.from({length: count - 1}, (_, host) => known[host + 1]?.phase ?? null).every(is);
  }

  onJob(path: string, was: Job, job: Job): void {
    const ended = job.attempts.length > was.attempts.length ? job.attempts.at(-1) : undefined;
    const isEarly = this.context.clockwork.now < Date.parse(String(was.due_at)) - MAX_SKEW_MS;
    if (/did not report its end/.test(ended?.error ?? '') && isEarly)
      this.breach(`${path} ended before its other hosts were due at ${was.due_at}: ${ended?.error}`);
    const isWaiting = job.status === 'running' && Object.values(job.ends).some(({cause}) => cause === 'peer');
    if (!isWaiting) this.#waits.delete(path);
    else if (!this.#waits.has(path)) this.#waits.set(path, this.context.clockwork.now);
    const last = job.attempts.at(-1);
    const {lease} = was;
    if (!lease || lease.host_count === 1) return;
    const members = lease.members.map(({worker}) => worker);
    const zones = new Set(members.map(name => name.replace(/-\d+$/, '')));
    if (members.length !== (was.slices === 1 ? 0 : was.slices) || zones.size > 1)
      this.breach(`${path} of ${was.slices} slices is leased to ${members}`);
    const changed = Object.entries(was.ends).filter(([host, end]) => job.ends[host]?.outcome !== end.outcome);
    if (job.epoch === was.epoch && changed.length > 0)
      this.breach(`${path} changed the ends of ${changed.map(([host]) => host)}`);
    if (last?.cause === 'peer') this.breach(`${path} ended for a lost peer, and not for its cause`);
    if (job.status !== 'completed') return;
    this.context.see('a slice completes a job');
    const completed = Object.values(job.ends).filter(({outcome}) => outcome === 'completed').length;
    const processes = lease.host_count * Math.max(1, lease.members.length);
    if (completed !== processes) this.breach(`${path} is completed by ${completed} of ${processes} hosts`);
    if (lease.members.length > 1) this.context.see('several slices complete a job');
  }

  /** The order of an attempt names all hosts of the node. */
  onAnswer({worker}: WorkerRequest, answer: Document): void {
    const node = this.context.tpus.nodes.get(worker);
    if (answer.action !== 'job' || !node) return;
    const {hosts} = answer.slice as {hosts: number};
    if (hosts !== hostsOfType(node.accelerator))
      this.breach(`${worker} has a job for ${hosts} hosts of ${hostsOfType(node.accelerator)}`);
  }

  /** In the calm, an attempt waits shortly for the cause of a lost peer, and a slice with a silent host goes, unless the silence guard of its zone holds it. */
  override onMinute(): void {
    const {clockwork, config, everAlone, store} = this.context;
    if (this.context.isSettled(PEERS_MS))
      for (const [path, since] of this.#waits)
        if (clockwork.now - since > PEERS_MS && store.peek(path) && !everAlone.has(path))
          this.breach(`${path} waits for the cause of a lost peer since ${clockwork.now - since} ms`);
    const limit_ms = config.limits.silent_s * 1000 + TICKS_MS;
    if (!this.context.isSettled(limit_ms)) return;
    const held = store.collection('zones').some(({data}) => data.silence_guard !== null);
    for (const worker of workersOf(store)) {
      const isUp = worker.phase === 'idle' || worker.phase === 'working';
      const silent_ms = clockwork.now - Date.parse(wordOf(worker as unknown as Document));
      if (worker.host_count > 1 && isUp && !held && silent_ms > limit_ms)
        this.breach(`${worker.name} has a host that is silent for ${silent_ms} ms`);
    }
  }
}
