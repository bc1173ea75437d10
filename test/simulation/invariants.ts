/** Passes each commit, call and minute of a world to the invariants that check it. */
import type {Job} from '../../shared/domain/records/job.ts';
import type {Zone} from '../../shared/domain/records/zone.ts';
import type {Document} from '../../shared/ports/ports.ts';
import type {Context} from './context.ts';
import {Caps, LOOK_MS} from './invariants/caps.ts';
import {Documents} from './invariants/documents.ts';
import {Effects} from './invariants/effects.ts';
import {Execs} from './invariants/execs.ts';
import {FailureAttribution} from './invariants/failure-attribution.ts';
import {Gangs} from './invariants/gangs.ts';
import {Jobs} from './invariants/jobs.ts';
import {Leases} from './invariants/leases.ts';
import {Ledger} from './invariants/ledger.ts';
import {Marks} from './invariants/marks.ts';
import {Money} from './invariants/money.ts';
import {Need} from './invariants/need.ts';
import {Nodes} from './invariants/nodes.ts';
import {Notices} from './invariants/notices.ts';
import {OperatorIntent} from './invariants/operator-intent.ts';
import {Progress} from './invariants/progress.ts';
import {Retention} from './invariants/retention.ts';
import {Silence} from './invariants/silence.ts';
import {Slices} from './invariants/slices.ts';
import {Speakers} from './invariants/speakers.ts';
import {Tasks} from './invariants/tasks.ts';
import {type StartedTick, Ticks} from './invariants/ticks.ts';
import {type Actor, Check, Violations, type WorkerRequest} from './invariants/violations.ts';
import {Waiting} from './invariants/waiting.ts';
import {Wakes} from './invariants/wakes.ts';
import {Zones} from './invariants/zones.ts';

/** The secret that comes with a request, and whether its sender speaks for another worker. */
export type Speech = {secret: string; isForged: boolean};

/** A document that was created or changed. */
type Commit = {path: string; id: string; before: Document | undefined; after: Document};

export class Invariants extends Check {
  readonly #of = [this.context, this.violations] as const;
  readonly #documents = new Documents(...this.#of);
  readonly #leases = new Leases(...this.#of);
  readonly #jobs = new Jobs(...this.#of);
  readonly #failureAttribution = new FailureAttribution(...this.#of);
  readonly progress = new Progress(...this.#of);
  readonly nodes = new Nodes(...this.#of);
  readonly silence = new Silence(...this.#of);
  readonly #zones = new Zones(...this.#of);
  readonly money = new Money(...this.#of);
  readonly #caps = new Caps(...this.#of);
  readonly #ledger = new Ledger(...this.#of);
  readonly #need = new Need(...this.#of);
  readonly execs = new Execs(...this.#of);
  readonly #effects = new Effects(...this.#of);
  readonly operatorIntent = new OperatorIntent(...this.#of);
  readonly #ticks = new Ticks(...this.#of, this.money);
  readonly #tasks = new Tasks(...this.#of);
  readonly waiting = new Waiting(...this.#of);
  readonly notices = new Notices(...this.#of);
  readonly #wakes = new Wakes(...this.#of);
  readonly #retention = new Retention(...this.#of);
  readonly #slices = new Slices(...this.#of);
  readonly #gangs = new Gangs(...this.#of);
  readonly #speakers = new Speakers(...this.#of);

  readonly #all: Check[] = [
    ...[this.#leases, this.#failureAttribution, this.progress, this.#jobs, this.silence, this.#zones],
    ...[this.money, this.#caps, this.#ticks, this.#tasks, this.nodes, this.operatorIntent, this.waiting],
    ...[this.execs, this.#effects, this.notices, this.#retention, this.#need, this.#slices, this.#gangs],
    new Marks(...this.#of),
  ];

  /** What checks a document that was created or changed, by the collections of its path. */
  readonly #byKind: Record<string, (commit: Commit) => unknown> = {
    runs: commit => this.#onRun(commit),
    'runs/streams': commit => this.#onStream(commit),
    workers: commit => this.#onWorker(commit),
    'workers/attempts': commit => this.#onIncarnationEnded(commit),
    zones: commit => this.#onZone(commit),
    events: ({id, before, after}) => this.waiting.onEvent(id, before, after),
    control: commit => this.#onControl(commit),
    pools: commit => this.#onPool(commit),
    notices: ({path, after}) => this.notices.onNotice(path, after),
    execs: ({path, before, after}) => this.execs.onExec(path, before, after),
    'execs/hosts': ({path, before, after}) => this.execs.onHost(path, before, after),
    system: ({id, before, after}) => id === 'creates' && this.#need.onCreates(before, after),
    tasks: commit => this.#onTask(commit),
  };

  constructor(context: Context) {
    super(context, new Violations());
  }

  get violation(): string | undefined {
    return this.violations.violation;
  }

  set actor(actor: Actor) {
    this.violations.actor = actor;
  }

  onCommit(path: string, before: Document | undefined, after: Document | undefined): void {
    this.#effects.onCommit(path, before, after);
    const [collection, id = '', ...below] = path.split('/');
    const kind = [collection, ...below.filter((_, index) => index % 2 === 0)].join('/');
    const isJob = kind === this.context.config.jobs_collection;
    if (after === undefined) this.#onDeleted(kind, path, id);
    this.#speakers.onCommit(path);
    this.violations.onCommit();
    if (!after) return;
    if (isJob) this.#onJob(path, before, after);
    const isEnd = ['completed', 'deleting', 'creating', 'gone'].includes(String(after.status ?? after.phase));
    if (isEnd && (after.status ?? after.phase) !== (before?.status ?? before?.phase))
      this.context.isDangerous = true;
    this.#byKind[kind]?.({path, id, before, after});
    if (!before) this.operatorIntent.onCreated(path, after);
    this.#documents.onCommit(kind, path, before, after);
  }

  #onDeleted(kind: string, path: string, id: string): void {
    // A changed run deletes the state of its fold.
    const mayEnd =
      kind === 'runs/system' ||
      (kind === this.context.config.jobs_collection && this.#jobs.mayBeDeleted) ||
      (kind.startsWith('runs/streams') && this.#retention.mayBeDeleted(id));
    this.context.alone.delete(path);
    if (kind === 'runs/streams') this.operatorIntent.onExpired(path);
    if (!mayEnd) this.breach(`${path} was deleted`);
  }

  #onJob(path: string, before: Document | undefined, after: Document): void {
    this.#jobs.onJob(path, before, after);
    if (before?.epoch !== undefined)
      for (const check of [this.#slices, this.#gangs])
        check.onJob(path, before as unknown as Job, after as unknown as Job);
  }

  #onRun({path, id, before, after}: Commit): void {
    this.context.see(`a run is: ${after.status}`);
    this.operatorIntent.onRun(id, before, after);
    this.notices.onRun(id, before, after);
    this.progress.onRun(id, after);
    this.money.onRun(id, after);
    this.waiting.onRun(id, before, after);
    if (before) this.#retention.onRun(id, before, after);
    if (before) this.operatorIntent.onSettings(path, before, after);
  }

  #onStream({path, id, before, after}: Commit): void {
    this.context.see(`a stream is: ${after.status}`);
    this.#leases.onStream(path, before, after);
    if (after.epoch !== before?.epoch) this.money.onLease(after);
    if (before) {
      this.progress.onStreamChange(path, before, after);
      this.#failureAttribution.onStream(path, before, after);
      this.operatorIntent.onStream(path, before, after);
    } else {
      this.progress.onStreamCreated(path, after);
      this.#retention.onStreamCreated(path, id);
    }
    if (this.violations.isBy('object') && before?.generation !== after.generation)
      this.#wakes.expectTick(`${path} was registered`);
    this.progress.onStream(path, after);
  }

  #onWorker({id, before, after}: Commit): void {
    this.context.see(`a worker is: ${after.phase}`);
    this.#leases.onWorker(id, before, after);
    this.#speakers.onWorker(id, before, after);
    this.waiting.onWorker(id, after);
    if (before) this.#onWorkerChanged(id, before, after);
    else this.nodes.onWorkerCreated(id, after);
  }

  #onWorkerChanged(id: string, before: Document, after: Document): void {
    this.nodes.onWorker(id, before, after);
    this.silence.onWorker(id, before, after);
    this.#zones.onWorker(before, after);
    this.operatorIntent.onWorker(id, before, after);
    this.money.onWorker(id, before, after);
    this.#caps.onWorker(id, before, after);
    this.#ledger.onWorker(id, before, after);
    this.#need.onWorker(id, before, after);
    this.#jobs.onWorker(id, before, after);
    this.#slices.onWorker(id, before, after);
    this.#gangs.onWorker(id, before, after);
  }

  #onIncarnationEnded({id, before, after}: Commit): void {
    if (before) return;
    this.context.see(`an incarnation ends: ${after.cause_kind}`);
    this.#leases.onIncarnationEnded(id, after);
    this.#failureAttribution.onIncarnationEnded(id, after);
    this.#zones.onIncarnationEnded(id, after);
    this.#ticks.onIncarnationEnded(id, after);
  }

  #onZone({path, before, after}: Commit): void {
    if (before) this.#zones.onZone(before as unknown as Zone, after as unknown as Zone);
    if (after.limiter) this.waiting.onZone(path, after as unknown as Zone);
  }

  #onControl({id, before, after}: Commit): void {
    this.operatorIntent.onControl(id, before, after);
    if (after.outcome === 'applied') this.#wakes.expectTick(`control message ${id} was applied`);
  }

  #onPool({path, id, before, after}: Commit): void {
    this.#zones.onPool(before, after);
    this.waiting.onPool(id, before, after);
    this.#gangs.onPool(id, before, after);
    this.nodes.onPool(id, after);
    if (before) this.operatorIntent.onSettings(path, before, after);
  }

  #onTask({path, id, before, after}: Commit): void {
    this.#tasks.onTask(path, before, after);
    if (id === 'rebuild' && before?.status === 'open' && /rebuild task each/.test(String(after.result)))
      this.nodes.onRebuild();
  }

  override onCommitted(paths: readonly string[]): void {
    for (const check of this.#all) check.onCommitted(paths);
  }

  /** Called when a request of a worker arrives. */
  override onRequest(request: WorkerRequest, {isForged}: Partial<Speech> = {}): void {
    if (!isForged) for (const check of this.#all) check.onRequest(request);
  }

  onAnswer(request: WorkerRequest, {secret, isForged}: Speech, status: number, answer: Document): void {
    this.#speakers.onAnswer(request, secret, isForged, status, answer);
    if (isForged) return;
    const what = request.outcome === undefined ? '' : `${request.outcome}: `;
    this.context.see(`${request.action} is answered: ${what}${answer.action ?? status}`);
    this.#leases.onAnswer(request, answer);
    this.#slices.onAnswer(request, answer);
    this.execs.onAnswer(request, answer);
    const isEnd = request.action === 'release' || request.action === 'finish';
    if (isEnd && status === 200 && this.violations.changed.has(request))
      this.#wakes.expectTick(`${request.worker} released its work`);
  }

  onTickStarted(): StartedTick {
    this.#wakes.onTickStarted();
    return this.#ticks.onTickStarted();
  }

  onTickEnded(begun: StartedTick): void {
    this.#ticks.onTickEnded(begun);
    this.#wakes.onTickEnded(begun);
    this.#caps.onTickEnded(begun);
  }

  /** Looks at the cost of the nodes every few seconds. */
  watchCaps(): void {
    this.#caps.look();
    this.context.after(LOOK_MS, () => this.watchCaps());
  }

  override onMinute(): void {
    for (const check of this.#all) check.onMinute();
  }

  /** Reports an error of the code. Errors of simulated faults are allowed. */
  onFailure(error: Error): void {
    const isCodeError =
      error instanceof TypeError || error instanceof ReferenceError || error instanceof RangeError;
    const isRefused = /Refused to write/.test(error.message);
    if (isCodeError || isRefused) this.breach(`a function failed without a simulated fault: ${error.stack}`);
  }

  override onWipe(): void {
    for (const check of this.#all) check.onWipe();
  }

  override atTheEnd(underway = 0): void {
    for (const check of this.#all) check.atTheEnd();
    if (underway !== 0) this.breach(`${underway} messages are neither handled nor lost`);
  }
}
