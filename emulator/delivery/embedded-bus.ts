import type {DatabaseSync, StatementSync} from 'node:sqlite';
import type {Bus, Document, Now} from '../../shared/ports/ports.ts';
import {firstDue, schema} from './bus-tables.ts';

/** An attempt to hand a message to its receiver. `attempt` counts from 1. */
export type Delivery = {id: string; topic: string; message: Document; published_at: string; attempt: number};

export type DeadLetter = Omit<Delivery, 'attempt'> & {attempts: number; last_error: string; died_at: string};

/** Thrown by `deliver` while the receiver is not running: the message is delivered again, and the attempt does not count. */
export class ReceiverAway extends Error {
  override name = 'ReceiverAway';
}

export type EmbeddedBusOptions = {
  /** Database of the messages. The owner may enqueue inside a transaction of its own. */
  database: DatabaseSync;
  /** Returns to acknowledge the message; throws to receive it again later. */
  deliver: (delivery: Delivery) => Promise<void>;
  now: Now;
  random: () => number;
  /** Most concurrent deliveries of a topic. Messages of a busy or slow topic never delay those of another topic. */
  concurrency?: number;
  /** Refusals after which a message becomes a dead letter. */
  max_attempts?: number;
  /** Age after which messages of a topic are dropped; undefined for a topic with dead letters. */
  retention_s?: (topic: string) => number | undefined;
  min_backoff_ms?: number;
  max_backoff_ms?: number;
  /** Delay before the next attempt while the receiver is not running. */
  away_ms?: number;
  /** Receives errors of the database after a delivery; the message stays and is delivered again. */
  trouble?: (error: unknown) => void;
};

type DeadRow = Row & Pick<DeadLetter, 'last_error' | 'died_at'>;
type Row = {seq: number; id: string; topic: string; message: string; published_at: string; attempts: number};

/**
 * At-least-once delivery from a table. A message is deleted from the table only after its receiver acknowledged it, so a crash between the
 * two delivers it again. Tests call `deliverDue` and step `now`; a process calls `start`.
 */
export class EmbeddedBus implements Bus {
  readonly #options: Required<EmbeddedBusOptions>;
  readonly #inFlight = new Map<number, Promise<void>>();
  /** Number of deliveries in flight, by topic. */
  readonly #busy = new Map<string, number>();
  readonly #statements: Record<'insert' | 'due' | 'next' | 'ack' | 'later' | 'bury', StatementSync>;
  #timer: NodeJS.Timeout | undefined;
  #running = false;
  #count = 0;

  constructor(options: EmbeddedBusOptions) {
    this.#options = {
      concurrency: 8,
      max_attempts: 20,
      retention_s: () => undefined,
      min_backoff_ms: 200,
      max_backoff_ms: 10_000,
      away_ms: 250,
      trouble: () => {},
      ...options,
    };
    const {database} = options;
    database.exec(schema);
    this.#statements = {
      insert: database.prepare(
        'INSERT INTO bus_messages (id, topic, message, published_at, due_at) VALUES (?, ?, ?, ?, ?)',
      ),
      due: database.prepare(firstDue),
      next: database.prepare('SELECT min(due_at) AS due_at FROM bus_messages WHERE due_at > ?'),
      ack: database.prepare('DELETE FROM bus_messages WHERE seq = ?'),
      later: database.prepare('UPDATE bus_messages SET attempts = ?, due_at = ? WHERE seq = ?'),
      bury: database.prepare(
        `INSERT OR REPLACE INTO bus_dead_letters (seq, id, topic, message, published_at, attempts, last_error, died_at)
         SELECT seq, id, topic, message, published_at, ?, ?, ? FROM bus_messages WHERE seq = ?`,
      ),
    };
  }

  async publish(topic: string, message: Document): Promise<string> {
    return this.enqueue(topic, message);
  }

  /**
   * The synchronous half of `publish`: one insert, which joins an open transaction of the database.
   * `id` gives one event the same id on several topics; by default it is unique.
   */
  enqueue(topic: string, message: Document, options: {id?: string; delay_ms?: number} = {}): string {
    const time = this.#options.now();
    const id = options.id ?? this.newId();
    this.#statements.insert.run(
      id,
      topic,
      JSON.stringify(message),
      new Date(time).toISOString(),
      time + (options.delay_ms ?? 0),
    );
    this.#wakeIn(0);
    return id;
  }

  /** Makes an id of digits, like those of Pub/Sub: the time, a count within this process, and a random part between processes. */
  newId(): string {
    const {now, random} = this.#options;
    this.#count = (this.#count + 1) % 10_000;
    const chance = Math.floor(random() * 100_000);
    return `${now()}${String(this.#count).padStart(4, '0')}${String(chance).padStart(5, '0')}`;
  }

  /** Delivers each due message once, several at a time, and returns the number of attempts. */
  async deliverDue(): Promise<number> {
    let tried = 0;
    const started = this.#options.now();
    const seen = new Set<number>();
    for (;;) {
      const batch = this.#due(started).filter(row => !seen.has(row.seq));
      for (const row of batch) {
        seen.add(row.seq);
        this.#begin(row);
        tried += 1;
      }
      if (batch.length === 0 && this.#inFlight.size === 0) return tried;
      await Promise.race(this.#inFlight.values());
    }
  }

  /** Delivers as messages come due, until `stop`. */
  start(): void {
    this.#running = true;
    this.#wakeIn(0);
  }

  /** Starts no new delivery, and waits for those that are running. */
  async stop(): Promise<void> {
    this.#running = false;
    clearTimeout(this.#timer);
    await Promise.all(this.#inFlight.values());
  }

  pending(): number {
    const row = this.#options.database.prepare('SELECT count(*) AS n FROM bus_messages').get() as {n: number};
    return row.n;
  }

  /** Time of the next attempt in milliseconds since 1970; undefined without a message. */
  nextDueAt(): number | undefined {
    const row = this.#statements.next.get(-1) as {due_at: number | null} | undefined;
    return row?.due_at ?? undefined;
  }

  deadLetters(): DeadLetter[] {
    const {database} = this.#options;
    const rows = database.prepare('SELECT * FROM bus_dead_letters ORDER BY seq').all() as DeadRow[];
    return rows.map(({seq: _seq, message, ...rest}) => ({...rest, message: JSON.parse(message) as Document}));
  }

  #due(time: number): Row[] {
    const {concurrency} = this.#options;
    // Rows that are being delivered are still in the table, so the query reads that many more rows.
    const rows = this.#statements.due.all(time, 2 * concurrency) as Row[];
    const busy = new Map(this.#busy);
    return rows.filter(({seq, topic}) => {
      const count = busy.get(topic) ?? 0;
      if (this.#inFlight.has(seq) || count >= concurrency) return false;
      busy.set(topic, count + 1);
      return true;
    });
  }

  #begin(row: Row): void {
    const {topic} = row;
    this.#busy.set(topic, (this.#busy.get(topic) ?? 0) + 1);
    const work = this.#deliver(row)
      .catch(async error => {
        this.#options.trouble(error);
        // A full disk stays full for a while.
        await new Promise(resolve => setTimeout(resolve, this.#options.away_ms));
      })
      .finally(() => {
        this.#inFlight.delete(row.seq);
        this.#busy.set(topic, (this.#busy.get(topic) ?? 0) - 1);
        this.#wakeIn(0);
      });
    this.#inFlight.set(row.seq, work);
  }

  async #deliver(row: Row): Promise<void> {
    const {deliver, now, away_ms, retention_s} = this.#options;
    const {id, topic, published_at} = row;
    const kept_s = retention_s(topic);
    if (kept_s !== undefined && now() > Date.parse(published_at) + kept_s * 1000) {
      this.#statements.ack.run(row.seq);
      return;
    }
    const attempt = row.attempts + 1;
    let refusal: {error: unknown} | undefined;
    try {
      await deliver({id, topic, message: JSON.parse(row.message) as Document, published_at, attempt});
    } catch (error) {
      refusal = {error};
    }
    // A delivery may end after the database was closed: the message stays in the file and is delivered again.
    if (!this.#options.database.isOpen) return;
    if (!refusal) this.#statements.ack.run(row.seq);
    else if (refusal.error instanceof ReceiverAway) {
      this.#statements.later.run(row.attempts, now() + away_ms, row.seq);
    } else this.#refused(row.seq, attempt, refusal.error, kept_s === undefined);
  }

  #refused(seq: number, attempt: number, error: unknown, canDie: boolean): void {
    const {max_attempts, now} = this.#options;
    if (attempt < max_attempts || !canDie) {
      this.#statements.later.run(attempt, now() + this.#backoff(attempt), seq);
      return;
    }
    const reason = error instanceof Error ? error.message : String(error);
    this.#statements.bury.run(attempt, reason, new Date(now()).toISOString(), seq);
    this.#statements.ack.run(seq);
  }

  #backoff(attempt: number): number {
    const {min_backoff_ms, max_backoff_ms, random} = this.#options;
    const whole = Math.min(max_backoff_ms, min_backoff_ms * 2 ** (attempt - 1));
    return Math.round(whole * (0.5 + random() / 2));
  }

  #wakeIn(delay_ms: number): void {
    if (!this.#running) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#pump(), delay_ms);
  }

  #pump(): void {
    const {database, now} = this.#options;
    if (!this.#running || !database.isOpen) return;
    const time = now();
    for (const row of this.#due(time)) this.#begin(row);
    const next = this.#statements.next.get(time) as {due_at: number | null} | undefined;
    if (next?.due_at != null) this.#wakeIn(Math.max(1, next.due_at - time));
  }
}
