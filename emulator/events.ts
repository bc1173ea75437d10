import {type Delivery, EmbeddedBus, ReceiverAway} from '../shared/embedded/bus.ts';
import type {Document} from '../shared/ports.ts';
import type {CloudDatabase} from './database.ts';
import type {Faults} from './faults.ts';
import {HOST_HEADER} from './guard.ts';
import type {JsonObject} from './json.ts';
import type {FunctionTrigger} from './triggers.ts';

type CloudEvent = {
  type: string;
  source: string;
  subject?: string;
  data: Document;
  attributes: {[key: string]: string};
};

export type PubsubMessage = {data: string; attributes: Record<string, string>; orderingKey?: string};

export type EventsOptions = {
  database: CloudDatabase;
  faults: Faults;
  triggers: FunctionTrigger[];
  project: string;
  /** Port of a function; undefined while its host is away. */
  portOf: (name: string) => number | undefined;
  /** Token that every request to the host of the functions carries. */
  token: string;
  random: () => number;
  trouble: (error: unknown) => void;
};

const reorder_ms = 2000;

/** Turns objects and messages into CloudEvents for the functions with that trigger, and delivers them. */
export class Events {
  readonly #options: EventsOptions;
  readonly bus: EmbeddedBus;

  constructor(options: EventsOptions) {
    this.#options = options;
    this.bus = new EmbeddedBus({
      database: options.database.connection,
      deliver: delivery => this.#deliver(delivery),
      now: Date.now,
      random: options.random,
      trouble: options.trouble,
    });
  }

  /** True if every function of the topic listens. */
  isReady(topic: string): boolean {
    const {triggers, portOf} = this.#options;
    const functions = triggers.filter(({trigger}) => trigger.kind === 'topic' && trigger.topic === topic);
    return functions.every(({name}) => portOf(name) !== undefined);
  }

  /** Runs inside the transaction that creates the object. */
  objectFinalized(bucket: string, resource: JsonObject): void {
    const functions = this.#options.triggers.filter(({trigger}) => trigger.kind === 'object-finalized');
    this.#send(functions, 'object', this.bus.newId(), {
      type: 'google.cloud.storage.object.v1.finalized',
      source: `//storage.googleapis.com/projects/_/buckets/${bucket}`,
      subject: `objects/${resource.name}`,
      data: resource as Document,
      attributes: {bucket},
    });
  }

  /** Stores all messages or none. Returns their ids. */
  publish(topic: string, messages: PubsubMessage[]): string[] {
    const {database, triggers, project} = this.#options;
    const functions = triggers.filter(({trigger}) => trigger.kind === 'topic' && trigger.topic === topic);
    return database.transaction(() =>
      messages.map(message => {
        const id = this.bus.newId();
        const subscription = `projects/${project}/subscriptions/local-${topic}`;
        this.#send(functions, topic, id, {
          type: 'google.cloud.pubsub.topic.v1.messagePublished',
          source: `//pubsub.googleapis.com/projects/${project}/topics/${topic}`,
          data: {message: {...message, messageId: id, publishTime: new Date().toISOString()}, subscription},
          attributes: {},
        });
        return id;
      }),
    );
  }

  #send(functions: FunctionTrigger[], target: string, id: string, event: CloudEvent): void {
    const {faults, random, database} = this.#options;
    const befalls = (kind: 'drop' | 'double' | 'reorder') => random() < faults.rate(kind, target);
    for (const {name} of functions) {
      if (befalls('drop')) {
        database.run(
          'INSERT INTO dropped_events (function, target, event, dropped_at) VALUES (?, ?, ?, ?)',
          ...[name, target, JSON.stringify({id, ...event}), new Date().toISOString()],
        );
        continue;
      }
      const copies = befalls('double') ? 2 : 1;
      for (let copy = 0; copy < copies; copy++) {
        const delay_ms = befalls('reorder') ? Math.round(random() * reorder_ms) : 0;
        this.bus.enqueue(name, event as Document, {id, delay_ms});
      }
    }
  }

  /** Acknowledgement deadline of the function's subscription. */
  #timeout_ms(name: string): number {
    const found = this.#options.triggers.find(trigger => trigger.name === name);
    return (found?.timeout_s ?? 60) * 1000;
  }

  async #deliver({id, topic: name, message, published_at}: Delivery): Promise<void> {
    const port = this.#options.portOf(name);
    if (port === undefined) throw new ReceiverAway(`The host of ${name} is away`);
    const event = message as CloudEvent;
    const headers: Record<string, string> = {
      [HOST_HEADER]: this.#options.token,
      'content-type': 'application/json',
      'ce-specversion': '1.0',
      'ce-id': id,
      'ce-type': event.type,
      'ce-source': event.source,
      'ce-time': published_at,
    };
    if (event.subject !== undefined) headers['ce-subject'] = headerValue(event.subject);
    for (const [key, value] of Object.entries(event.attributes)) headers[`ce-${key}`] = headerValue(value);
    let response: Response;
    try {
      response = await fetch(`http://127.0.0.1:${port}/`, {
        method: 'POST',
        headers,
        body: JSON.stringify(event.data),
        signal: AbortSignal.timeout(this.#timeout_ms(name)),
      });
    } catch (error) {
      if (isRefused(error)) throw new ReceiverAway(`The host of ${name} is away`, {cause: error});
      const {message: reason, cause} = error as Error;
      throw new Error(
        `${name} gave no answer: ${reason}${cause instanceof Error ? ` (${cause.message})` : ''}`,
      );
    }
    const text = await response.text();
    if (!response.ok) throw new Error(`${name} answered ${response.status}: ${text.slice(0, 500)}`);
  }
}

function isRefused(error: unknown): boolean {
  const cause = (error as {cause?: {code?: string}}).cause;
  return cause?.code === 'ECONNREFUSED';
}

/** Percent-encodes the characters that a header may not hold, by the HTTP binding of CloudEvents. */
function headerValue(text: string): string {
  return text.replace(/[^!#$&-~]/gu, character => encodeURIComponent(character));
}
