/** Delivers messages, object events and the requests of the Scheduler. A delivery may be lost, doubled, late, reordered or repeated. */
import {Rejected} from '../../shared/contracts/errors.ts';
import {iso} from '../../shared/domain/time.ts';
import type {Document} from '../../shared/ports/ports.ts';
import {eventOf, jobEvent, messageData, notificationData, type Topic} from '../world/bus.ts';
import {MINUTE_MS} from './conditions/times.ts';
import type {Context} from './context.ts';
import type {ExecOrder} from './invariants/execs.ts';
import type {Codes} from './planting/code.ts';
import {type Process, Processes} from './processes.ts';

/** Messages whose senders wait for the confirmation. */
const ASKED_BY_PEOPLE: Topic[] = ['control', 'exec'];

/** The deadline of ticks and tasks, as in triggers.json. */
const LONG_DEADLINE_MS = 9 * MINUTE_MS;

type Message = {id: string; topic: Topic; content: Document; data: Document; attempt: number};

export class Delivery {
  readonly processes: Processes;
  readonly #context: Context;
  #count = 0;
  /** The number of messages that are neither handled nor lost. Ticks and tasks do not count, because they never end. */
  underway = 0;

  constructor(context: Context, codes: Codes) {
    this.#context = context;
    this.processes = new Processes(context, codes, (topic, message) => this.send(topic as Topic, message));
  }

  /** Publishes a message and returns its id. A message of a person is never lost. */
  send(topic: Topic, content: Document, attributes: Record<string, string> = {}): string {
    const {chance, faults} = this.#context;
    this.#count += 1;
    const id = String(1000 + this.#count);
    const published_at = iso(this.#context.clockwork.now);
    const data =
      topic === 'object'
        ? notificationData(id, content as Parameters<typeof notificationData>[1], published_at)
        : messageData(id, JSON.stringify(content), published_at, attributes);
    if (!ASKED_BY_PEOPLE.includes(topic) && this.#context.strikes('loss')) {
      this.#context.note(() => `${topic} ${id} is lost`);
      return id;
    }
    const copies = this.#context.strikes('duplicate') ? 2 : 1;
    for (let copy = 0; copy < copies; copy++) {
      const isOften = topic === 'control' && this.#context.isBusy;
      const late_s = chance.happens(isOften ? 0.8 : 0.3) ? faults.delay_s * chance.next() : 0;
      if (late_s > 0) this.#context.see('fault: delay_s');
      this.#deliver({id, topic, content, data, attempt: 1}, 50 + 1000 * (late_s + chance.next()));
    }
    return id;
  }

  /** Sends a control message of a person, which leaves a record. */
  command(message: Document, outcome?: 'rejected'): void {
    this.#context.note(() => `an operator sends ${JSON.stringify(message)}`);
    const id = this.send('control', message);
    const {run, action} = message;
    for (const each of action === 'rebuild' && run === undefined ? this.#context.runs() : [String(run)])
      this.#context.touched.add(each);
    this.#context.messages.set(id, message);
    this.#context.invariants.operatorIntent.expectRecord(id, outcome);
  }

  /** Sends a command of a person for hosts. */
  exec(order: ExecOrder): void {
    this.#context.note(() => `an operator runs ${JSON.stringify(order)}`);
    this.#context.invariants.execs.onSent(this.send('exec', order), order);
  }

  #deliver(message: Message, delay_ms: number): void {
    const isCounted = message.topic !== 'tick' && message.topic !== 'tasks';
    if (isCounted) this.underway += 1;
    this.#context.after(delay_ms, () => {
      const {id, topic, content, data, attempt} = message;
      const process = topic === 'tick' ? this.processes.tickInstance() : this.processes.instance();
      this.#context.note(() => `${process.name} receives ${topic} ${id}, attempt ${attempt}`);
      const actor = {
        topic,
        id,
        at: this.#context.clockwork.now,
        ...(topic === 'tasks' ? {task: String(content.task)} : {}),
      };
      const event = topic === 'job' ? jobEvent(id, String(content.job)) : eventOf(id, topic, data);
      this.#handle(
        process,
        process.code.handlers[topic](this.processes.deps(process, actor), event).then(() => {
          if (topic === 'control') this.#context.invariants.operatorIntent.onHandled(id, content);
        }),
        isCounted,
        again_ms => {
          if (again_ms !== undefined)
            this.#deliver({...message, attempt: attempt + 1}, again_ms * Math.min(attempt, 10));
        },
      );
    });
  }

  /** Calls `end` once: when the handler ends, fails, or exceeds its deadline. */
  #handle(
    process: Process,
    handling: Promise<void>,
    isCounted: boolean,
    end: (again_ms: number | undefined) => void,
  ): void {
    let hasEnded = false;
    const endOnce = (again_ms: number | undefined) => {
      if (hasEnded) return;
      hasEnded = true;
      if (isCounted) this.underway -= 1;
      end(again_ms);
    };
    handling.then(
      () => endOnce(undefined),
      error => {
        this.#context.note(() => `${process.name} fails: ${error.message}`);
        this.#context.invariants.onFailure(error);
        endOnce(error instanceof Rejected ? undefined : 10_000);
      },
    );
    const deadline_ms = isCounted ? this.#context.ack_deadline_ms : LONG_DEADLINE_MS;
    this.#context.after(deadline_ms, () => {
      if (!hasEnded && !process.isDead) this.#context.see('at the same time: a handler and its redelivery');
      endOnce(0);
    });
  }

  /** Sends a tick every minute for ever, as the Scheduler does. */
  startScheduler(): void {
    this.#context.after(MINUTE_MS, () => {
      this.#context.invariants.onMinute();
      if (!this.#context.strikes('loss', this.#context.faults.loss / 2))
        this.send('tick', {}, {source: 'scheduler'});
      this.startScheduler();
    });
  }
}
