/** Invariants of a world: each commit, call and minute goes to the invariants that check it. */
import type {Zone} from '../../shared/domain/fleet/placement.ts';
import type {Document, ObjectInfo, Tpu, TpuRequest} from '../../shared/ports.ts';
import type {Context} from './context.ts';
import {Documents} from './invariants/documents.ts';
import {FailureAttribution} from './invariants/failure-attribution.ts';
import {Leases} from './invariants/leases.ts';
import {Money} from './invariants/money.ts';
import {Nodes} from './invariants/nodes.ts';
import {OperatorIntent} from './invariants/operator-intent.ts';
import {Progress} from './invariants/progress.ts';
import {Silence} from './invariants/silence.ts';
import {Tasks} from './invariants/tasks.ts';
import {type BegunTick, Ticks} from './invariants/ticks.ts';
import {type Actor, type Said, Violations} from './invariants/violations.ts';
import {Wakes} from './invariants/wakes.ts';
import {Zones} from './invariants/zones.ts';

export class Invariants {
  readonly #context: Context;
  readonly #violations = new Violations();
  readonly #documents: Documents;
  readonly #leases: Leases;
  readonly #failureAttribution: FailureAttribution;
  readonly #progress: Progress;
  readonly #nodes: Nodes;
  readonly #silence: Silence;
  readonly #zones: Zones;
  readonly #money: Money;
  readonly #operatorIntent: OperatorIntent;
  readonly #ticks: Ticks;
  readonly #tasks: Tasks;
  readonly #wakes: Wakes;

  constructor(context: Context) {
    this.#context = context;
    this.#documents = new Documents(context, this.#violations);
    this.#leases = new Leases(context, this.#violations);
    this.#failureAttribution = new FailureAttribution(context, this.#violations);
    this.#progress = new Progress(context, this.#violations);
    this.#nodes = new Nodes(context, this.#violations);
    this.#silence = new Silence(context, this.#violations);
    this.#zones = new Zones(context, this.#violations);
    this.#money = new Money(context, this.#violations);
    this.#operatorIntent = new OperatorIntent(context, this.#violations);
    this.#ticks = new Ticks(context, this.#violations, this.#money);
    this.#tasks = new Tasks(context, this.#violations);
    this.#wakes = new Wakes(context, this.#violations);
  }

  get violation(): string | undefined {
    return this.#violations.violation;
  }

  set actor(actor: Actor) {
    this.#violations.actor = actor;
  }

  onCommit(path: string, before: Document | undefined, after: Document | undefined): void {
    const [collection, id = '', ...below] = path.split('/');
    const kind = [collection, ...below.filter((_, index) => index % 2 === 0)].join('/');
    // A fold begins again when its run has changed.
    this.#violations.check(after !== undefined || kind === 'runs/system', () => `${path} was deleted`);
    if (!after) return;
    const isEnd = ['completed', 'deleting', 'creating', 'gone'].includes(String(after.status ?? after.phase));
    if (isEnd && (after.status ?? after.phase) !== (before?.status ?? before?.phase))
      this.#context.isDangerous = true;
    switch (kind) {
      case 'runs':
        this.#context.see(`a run is: ${after.status}`);
        this.#operatorIntent.onRun(id, before, after);
        this.#progress.onRun(id, after);
        break;
      case 'runs/streams':
        this.#context.see(`a stream is: ${after.status}`);
        this.#leases.onStream(path, before, after);
        if (before) {
          this.#progress.onStreamChange(path, before, after);
          this.#failureAttribution.onStream(path, before, after);
          this.#operatorIntent.onStream(path, before, after);
        } else this.#progress.onStreamMade(path, after);
        if (this.#isByEvent && before?.generation !== after.generation)
          this.#wakes.expectTick(`${path} was registered`);
        this.#progress.onStream(path, after);
        break;
      case 'workers':
        this.#context.see(`a worker is: ${after.phase}`);
        this.#leases.onWorker(id, before, after);
        if (!before) {
          this.#nodes.onWorkerMade(id, after);
          break;
        }
        this.#nodes.onWorker(id, before, after);
        this.#silence.onWorker(id, before, after);
        this.#zones.onWorker(before, after);
        this.#operatorIntent.onWorker(id, before, after);
        this.#money.onWorker(id, before, after);
        break;
      case 'workers/attempts':
        if (before) break;
        this.#context.see(`an incarnation ends: ${after.cause_kind}`);
        this.#leases.onEndOfLife(id, after);
        this.#failureAttribution.onEndOfLife(id, after);
        this.#zones.onEndOfLife(id, after);
        break;
      case 'zones':
        if (before) this.#zones.onZone(before as unknown as Zone, after as unknown as Zone);
        break;
      case 'control':
        this.#operatorIntent.onControl(id, before, after);
        if (after.outcome === 'applied') this.#wakes.expectTick(`control message ${id} was applied`);
        break;
      case 'pools':
        this.#zones.onPool(after);
        break;
      case 'tasks':
        this.#tasks.onTask(path, before, after);
        if (id === 'rebuild' && before?.status === 'open' && /rebuild task each/.test(String(after.result)))
          this.#nodes.onRebuild();
        break;
    }
    if (!before) this.#operatorIntent.onMade(path, after);
    this.#documents.onCommit(kind, path, before, after);
  }

  /** True if the present call is made for an object event. */
  get #isByEvent(): boolean {
    const {actor} = this.#violations;
    return actor !== undefined && 'topic' in actor && actor.topic === 'object';
  }

  /** All documents of a transaction are written. */
  onCommitted(paths: readonly string[]): void {
    this.#leases.onCommitted(paths);
    this.#zones.onCommitted();
  }

  onObject(object: ObjectInfo): void {
    this.#progress.onObject(object);
  }

  onDeleted(name: string): void {
    this.#progress.onDeleted(name);
  }

  /** A worker's request has arrived. */
  onAsked(said: Said): void {
    this.#leases.onAsked(said);
    this.#failureAttribution.onAsked(said);
  }

  onAnswer(said: Said, status: number, answer: Document): void {
    const what = said.outcome === undefined ? '' : `${said.outcome}: `;
    this.#context.see(`${said.action} is answered: ${what}${answer.action ?? status}`);
    this.#leases.onAnswer(said, answer);
    if (said.action === 'release' && status === 200)
      this.#wakes.expectTick(`${said.worker} released its stream`);
  }

  onAskedFor(request: TpuRequest): void {
    this.#nodes.onAskedFor(request);
  }

  onNodeDeleted(node: Tpu | undefined): void {
    this.#nodes.onNodeDeleted(node);
  }

  onOutage(isOut: boolean): void {
    this.#silence.onOutage(isOut);
  }

  onTickBegun(): BegunTick {
    this.#wakes.onTickBegun();
    return this.#ticks.onTickBegun();
  }

  /** Ticks that ended. */
  ticks = 0;

  onTickEnded(begun: BegunTick): void {
    this.ticks += 1;
    this.#ticks.onTickEnded(begun);
  }

  onMinute(): void {
    this.#money.onMinute();
    this.#ticks.onMinute();
    this.#wakes.onMinute();
    this.#progress.onMinute();
  }

  /** An error of the code, not of a simulated fault. */
  onFailure(error: Error): void {
    const isOurs =
      error instanceof TypeError || error instanceof ReferenceError || error instanceof RangeError;
    const isRefused = /Refused to write/.test(error.message);
    this.#violations.check(!isOurs && !isRefused, () => `a function failed on its own: ${error.stack}`);
  }

  onStop(run: string): void {
    this.#operatorIntent.onStop(run);
  }

  expectRecord(message_id: string, outcome: 'rejected' | undefined): void {
    this.#operatorIntent.expectRecord(message_id, outcome);
  }

  onObeyed(id: string, message: Document): void {
    this.#operatorIntent.onObeyed(id, message);
  }

  onWipe(): void {
    this.#nodes.onWipe();
    this.#silence.onWipe();
    this.#zones.onWipe();
    this.#money.onWipe();
    this.#operatorIntent.onWipe();
  }

  atTheEnd(underway: number): void {
    this.#progress.atTheEnd();
    this.#ticks.atTheEnd();
    this.#tasks.atTheEnd();
    this.#violations.check(underway === 0, () => `${underway} messages are neither handled nor lost`);
    this.#nodes.atTheEnd();
    this.#money.atTheEnd();
    this.#operatorIntent.atTheEnd();
  }
}
