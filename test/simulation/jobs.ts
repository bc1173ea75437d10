/** People submit jobs by a document or by a message, and cancel, retry, delete and clear them. */
import {paths} from '../../shared/domain/names.ts';
import {iso} from '../../shared/domain/time.ts';
import type {Document} from '../../shared/ports/ports.ts';
import type {Chance} from '../world/clock.ts';
import type {Context} from './context.ts';
import type {Delivery} from './delivery.ts';
import type {Course} from './invariants/facts.ts';
import {GANG_SLICES, type SecondPool} from './second-pool.ts';

const MOST_JOBS = 8;
/** A deadly job takes its worker about an hour: the calm of a world with one slot has time for one. */
const MOST_DEADLY = 1;
const MACHINES_OF_A_JOB = 5;
const HASTY_JOBS = 8;
const COLLISIONS = 4;
const SHORT_JOBS = 16;
/** Jobs of three slices, and the jobs of one that fill the pool one after the other. */
const GANGS = 2;
const SMALL_JOBS = 10;
/** Time of a job whose document may be left alone, in seconds: its lost machine shows before the time is over. */
const LONG_S = 7200;
/** Time between two looks of a person at a job. */
const LOOK_MS = 15_000;
type Fields = {
  code: string;
  timeout: number;
  max_retries: number;
  priority?: number;
  deadline_at?: string;
  budget_usd?: number;
  pool?: string;
  slices?: number;
};

export class Jobs {
  readonly #context: Context;
  readonly #delivery: Delivery;
  readonly #second: SecondPool;
  /** Draws of the worlds with orders: long and broken jobs, deadlines and budgets. */
  readonly #more: Chance | undefined;
  readonly #isLeftAlone: boolean;
  #deadly = 0;
  /** The most machines that the jobs end: a job fails at its fifth. */
  machines = 0;

  constructor(context: Context, delivery: Delivery, second: SecondPool) {
    this.#context = context;
    this.#delivery = delivery;
    this.#second = second;
    this.#isLeftAlone = context.drawsOf('left alone') !== undefined;
    this.#more = context.drawsOf('orders');
    this.#planShort();
    this.#planGangs();
    this.#planCollisions();
    const chance = context.drawsOf('jobs');
    if (!chance) return;
    const most = MOST_JOBS * (context.drawsOf('many jobs') ? 3 : 1);
    const count = chance.integer(most / 8, most);
    for (let number = 0; number < count; number++) this.#planJob(`job-${number}`, chance);
    this.#planHurry(count);
  }

  /** Hurried people delete jobs while the control plane takes them up, and cancel jobs that run. One job fails again and again, for longer than its report is late. */
  #planHurry(count: number): void {
    const {context, chance} = {context: this.#context, chance: this.#context.drawsOf('hurried people')};
    if (!chance) return;
    for (let number = 0; number < HASTY_JOBS; number++) {
      const [id, ms] = [`hasty-${number}`, chance.between(0, 20) * 60_000];
      const seen_ms = chance.between(100, 1200);
      context.after(ms, () => this.#submit(id, 'works', {code: 'works 30', timeout: 600, max_retries: 0}));
      context.after(ms + seen_ms, () => this.#delete(id));
    }
    const fields = {code: 'fails 100', timeout: 600, max_retries: 2, priority: 1};
    context.after(chance.between(0, 15) * 60_000, () => this.#submit('again', 'fails', fields));
    context.after(chance.between(8, 25) * 60_000, () =>
      this.#send({action: 'retry', where: {cause: 'timeout'}}),
    );
    for (let number = 0; number < count; number += 2) {
      const [job, status] = [`job-${number}`, chance.pick(['completed', 'failed'])];
      context.after(60_000, () => this.#whenIs(job, status, () => this.#send({action: 'retry', job})));
    }
    for (let number = 0; number < count; number++)
      if (chance.happens(0.5))
        this.#cancelWhileRunning(`job-${number}`, chance.between(5, 60) * 1000, chance.between(-3, 3) * 1000);
  }

  /** Many short jobs wait in a line when their deadlines pass, and one job restarts its agent. */
  #planShort(): void {
    const {context, chance} = {context: this.#context, chance: this.#context.drawsOf('short deadlines')};
    if (!chance) return;
    const fields = {code: 'restarts 20', timeout: 600, max_retries: 0, priority: -1};
    context.after(chance.between(0, 15) * 60_000, () => this.#submit('restarts', 'restarts', fields));
    const from = chance.between(3, 15);
    for (let number = 0; number < SHORT_JOBS; number++) {
      const [minutes, due_ms] = [from + chance.next(), chance.between(1, 10) * 60_000];
      const code = `works ${chance.integer(5, 40)}`;
      context.after(minutes * 60_000, () => {
        const deadline_at = iso(context.clockwork.now + due_ms);
        this.#submit(`short-${number}`, 'works', {code, timeout: 600, max_retries: 0, deadline_at});
        const costly = {
          code: 'works 600',
          timeout: 900,
          max_retries: 1,
          budget_usd: chance.between(0.002, 0.02),
        };
        if (number % 4 === 0) this.#submit(`costly-${number}`, 'works', costly);
      });
    }
  }

  /** Jobs of three slices share a pool of four, and smaller jobs end one at a time. */
  #planGangs(): void {
    const {context, chance} = {context: this.#context, chance: this.#context.drawsOf('gangs')};
    if (!chance || !context.hasGangs) return;
    const plan = (id: string, slices: number, minutes: number, seconds: number) =>
      context.after(minutes * 60_000, () => {
        const place = this.#second.forSlices(slices);
        const fields = {code: `works ${seconds}`, timeout: 600, max_retries: 2};
        if (place) this.#submit(id, 'works', {...fields, ...place});
      });
    for (let number = 0; number < GANGS; number++)
      plan(`gang-${number}`, GANG_SLICES, chance.between(2, 18), chance.integer(20, 300));
    for (let number = 0; number < SMALL_JOBS; number++)
      plan(`small-${number}`, 1, chance.between(1, 30), chance.integer(120, 540));
  }

  /** People clear the jobs that have ended, and retry one of them at the same time. */
  #planCollisions(): void {
    const {context, chance} = {context: this.#context, chance: this.#context.drawsOf('collisions')};
    for (let number = 0; chance && number < COLLISIONS; number++) {
      const [id, ms] = [`twice-${number}`, chance.between(0, 20) * 60_000];
      const [clear_ms, retry_ms] = [chance.between(0, 2000), chance.between(0, 4000)];
      const fields = {code: 'fails 10', timeout: 600, max_retries: 0};
      context.after(ms, () => this.#submit(id, 'fails', fields));
      context.after(ms, () =>
        this.#whenIs(id, 'failed', () => {
          context.after(clear_ms, () => this.#send({action: 'clear'}));
          context.after(retry_ms, () => this.#send({action: 'retry', job: id}));
        }),
      );
    }
  }

  #submit(id: string, course: Course, fields: Fields): void {
    if (this.#context.isCalm) return;
    const isBounded = fields.deadline_at !== undefined || fields.budget_usd !== undefined;
    this.#context.submitted.set(id, {course, max_retries: fields.max_retries, isDeleted: false, isBounded});
    this.#write(id, {...fields, status: 'pending', created_at: iso(this.#context.clockwork.now)});
  }

  /** Cancels a job while it runs, and retries it just before or after that. The two may arrive in either order. */
  #cancelWhileRunning(id: string, delay_ms: number, later_ms: number): void {
    this.#whenIs(id, 'running', () => {
      this.#context.after(delay_ms, () => this.#send({action: 'cancel', job: id}));
      this.#context.after(delay_ms + later_ms, () => this.#send({action: 'retry', job: id}));
    });
  }

  /** A person looks at a job until it has the status, and acts then. */
  #whenIs(id: string, status: string, act: () => void): void {
    const {config, isCalm, store} = this.#context;
    if (isCalm) return;
    if (store.peek(paths.job(config.jobs_collection, id))?.status === status) act();
    else this.#context.after(LOOK_MS, () => this.#whenIs(id, status, act));
  }

  #planJob(id: string, chance: Chance): void {
    const context = this.#context;
    const drawn = chance.pick<Course>([
      ...(['works', 'works', 'works', 'works', 'fails', 'endless', 'deadly', 'invalid'] as const),
    ]);
    if (drawn === 'deadly') this.#deadly += 1;
    const seconds = chance.integer(5, 400);
    const timeout = drawn === 'invalid' ? -1 : drawn === 'endless' ? chance.pick([60, 300]) : 600;
    const course = this.#courseOf(drawn, timeout);
    const isLong = course === 'works' && this.#isLeftAlone;
    if (course === 'deadly' || course === 'stuck') this.machines += MACHINES_OF_A_JOB;
    const drawn_fields = {
      code: `${course} ${seconds}`,
      timeout: isLong ? LONG_S : timeout,
      priority: chance.integer(-1, 1),
      max_retries: chance.pick([0, 0, 1, 2]),
    };
    const [isMessage, isDeleted, isCancelled, isRetried] = [0.3, 0.1, 0.15, 0.2].map(p => chance.happens(p));
    const submit_ms = chance.between(0, 20) * 60_000;
    const minutes = chance.between(0, 15);
    const later_ms = submit_ms + minutes * 60_000;
    // Many deletes come at once: the control plane takes up the job at that time.
    const deleted_ms = submit_ms + (minutes / 15) ** 3 * 15 * 60_000;
    context.after(submit_ms, () => {
      const fields = {...drawn_fields, ...this.#second.forJob(), ...this.#moreFor(course)};
      context.note(() => `a person submits ${id}: ${JSON.stringify(fields)}`);
      context.submitted.set(id, {
        course: /^broken/.test(fields.code) ? 'broken' : course,
        max_retries: fields.max_retries,
        isDeleted: false,
        isBounded: fields.deadline_at !== undefined || fields.budget_usd !== undefined,
      });
      if (isMessage && course !== 'invalid') this.#send({action: 'submit', job: id, ...fields});
      else this.#write(id, {...fields, status: 'pending', created_at: iso(context.clockwork.now)});
    });
    if (isDeleted) context.after(deleted_ms, () => this.#delete(id));
    else if (isCancelled) context.after(later_ms, () => this.#send({action: 'cancel', job: id}));
    else if (isRetried) context.after(later_ms, () => this.#send({action: 'retry', job: id}));
  }

  /** Some jobs that would work take long or cannot start, and some have a deadline or a budget. */
  #moreFor(course: Course): {code?: string; timeout?: number; deadline_at?: string; budget_usd?: number} {
    const chance = this.#more;
    if (!chance) return {};
    const [kind, minutes, usd] = [chance.next(), chance.between(1, 40), chance.between(0.001, 0.1)];
    const bounds = {
      ...(chance.happens(0.15) ? {deadline_at: iso(this.#context.clockwork.now + minutes * 60_000)} : {}),
      ...(chance.happens(0.15) ? {budget_usd: usd} : {}),
    };
    if (course !== 'works') return bounds;
    if (kind < 0.2) return {code: 'broken 5', ...bounds};
    return kind < 0.5 ? {code: `works ${900 + Math.round(minutes * 30)}`, timeout: 3600, ...bounds} : bounds;
  }

  /** Half of the endless jobs have an agent that hangs with them. */
  #courseOf(drawn: Course, timeout: number): Course {
    if (drawn === 'deadly' && this.#deadly > MOST_DEADLY) return 'works';
    return drawn === 'endless' && timeout === 300 ? 'stuck' : drawn;
  }

  #send(message: Document): void {
    if (this.#context.isCalm && message.action !== 'submit') return;
    this.#delivery.command(message);
  }

  /** Writes as a client library of Firestore does. The event of the document may be lost. */
  #write(id: string, document: Document): void {
    const {config, store} = this.#context;
    const path = paths.job(config.jobs_collection, id);
    void store.edit(tx => tx.create(path, document)).then(() => this.#delivery.send('job', {job: id}));
  }

  #delete(id: string): void {
    const {config, isCalm, store, submitted} = this.#context;
    const path = paths.job(config.jobs_collection, id);
    const job = submitted.get(id);
    if (isCalm || !job || !store.peek(path)) return;
    this.#context.see('a person deletes a job');
    job.isDeleted = true;
    void store.edit(tx => tx.delete(path));
  }

  /** Submitted jobs that have not ended. */
  unfinished(): string[] {
    const {config, store, submitted} = this.#context;
    return [...submitted].flatMap(([id, {isDeleted}]) => {
      const status = store.peek(paths.job(config.jobs_collection, id))?.status;
      return isDeleted || ['completed', 'failed', 'cancelled'].includes(String(status)) ? [] : [id];
    });
  }
}
