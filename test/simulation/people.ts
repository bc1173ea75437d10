/** What people do: they drop streams, drop them again, and send messages, good ones and nonsense. */
import {paths, streamObject} from '../../shared/core/names.ts';
import type {Document} from '../../shared/ports.ts';
import type {Delivery} from './delivery.ts';
import type {Setting} from './setting.ts';
import {aStreamOf} from './streams.ts';

export class People {
  readonly #setting: Setting;
  readonly #delivery: Delivery;

  constructor(setting: Setting, delivery: Delivery) {
    this.#setting = setting;
    this.#delivery = delivery;
  }

  planDrops(): void {
    const {chance} = this.#setting;
    for (let run = 0, runs = this.#setting.count('second run', 2); run < runs; run++)
      for (let stream = 0, streams = this.#setting.count('second stream', 3); stream < streams; stream++) {
        const lines = chance.integer(1, 9);
        const bad = chance.happens(0.3) ? chance.integer(0, lines - 1) : undefined;
        const name = streamObject(`run-${run}`, `00${stream}`);
        const text = aStreamOf(lines, `${run}/${stream}`, bad);
        this.#setting.after(this.#setting.minutes(0, 12), () => this.#drop(name, text));
        if (chance.happens(0.1))
          this.#setting.after(this.#setting.minutes(12, 30), () => this.#drop(name, text));
      }
  }

  #drop(name: string, text: string): void {
    this.#setting.note(() => `somebody drops ${name}`);
    this.#setting.streams.set(name, text);
    this.#setting.objects.put(name, text);
  }

  planMessages(): void {
    const {chance, faults, tpus} = this.#setting;
    for (let count = 0; chance.happens(faults.meddling) && count < 6; count++)
      this.#setting.after(this.#setting.minutes(1, 35), () => {
        if (this.#setting.isCalm) return;
        const run = `run-${chance.integer(0, 1)}`;
        const worker = chance.pick([...tpus.nodes.keys(), 'tpu-us-central1-a-0']);
        this.#say(
          chance.pick([
            {action: 'pause', run},
            {action: 'resume', run},
            {action: 'start', run},
            {action: 'recreate', worker},
            {action: 'dance'},
          ]),
        );
      });
  }

  #say(message: Document): void {
    this.#setting.note(() => `somebody says ${JSON.stringify(message)}`);
    this.#setting.invariants.expectRecord(this.#delivery.send('control', message));
  }

  giveMoney(): void {
    if (this.#setting.config.pool.budget_usd !== null) this.#say({action: 'scale', budget_usd: null});
  }

  startAll(): void {
    for (const run of this.#setting.runs()) this.#say({action: 'start', run});
  }

  /** Uploads again what was parked because machine after machine failed. */
  reviveParked(): void {
    for (const [name, text] of this.#setting.streams) {
      const [, run = '', file = ''] = name.split('/');
      if (this.#setting.store.peek(paths.stream(run, file.slice(7, 10)))?.status === 'failed')
        this.#drop(name, text);
    }
  }
}
