import {randomUUID} from 'node:crypto';
import {nameIn} from '../../shared/domain/deployment.ts';
import type {Document} from '../../shared/ports/ports.ts';
import {type Delivery, EmbeddedBus, ReceiverAway} from '../delivery/embedded-bus.ts';
import type {JsonObject} from '../http/json.ts';
import type {CloudDatabase} from '../state/database.ts';
import type {Faults} from '../state/faults.ts';
import {
  type DocumentEvent,
  type DocumentTrigger,
  documentRequest,
  EVENT_RETENTION_S,
} from './document-events.ts';
import {type PubsubMessage, postEvent, pushMessage} from './push.ts';
import {type Deployment, RETRY, type Subscription} from './subscriptions.ts';
import type {Triggers} from './triggers.ts';

export type {PubsubMessage} from './push.ts';

export type EventsOptions = {
  database: CloudDatabase;
  faults: Faults;
  deployments: Deployment[];
  subscriptions: Subscription[];
  documents: DocumentTrigger[];
  notifications: Triggers['notifications'];
  project: string;
  /** Port of a function; undefined while its host is not running. */
  portOf: (receiver: Pick<Subscription, 'deployment' | 'function'>) => number | undefined;
  /** Token that every request to the host of the functions carries. */
  token: string;
  random: () => number;
  trouble: (error: unknown) => void;
  /** Publishes a message on Google's Pub/Sub emulator, which then pushes it instead of this class. */
  forward?: ((topic: string, message: PubsubMessage) => Promise<void>) | undefined;
};

const reorder_ms = 2000;
/** Prefix of the receiver of forwarded messages. The name of a subscription has no slash. */
const FORWARD = 'forward/';

/** Sends notifications of objects, messages of topics and events of documents to the functions. */
export class Events {
  readonly #options: EventsOptions;
  readonly #subscriptions: Map<string, Subscription>;
  readonly #documents: Map<string, DocumentTrigger>;
  readonly bus: EmbeddedBus;

  constructor(options: EventsOptions) {
    this.#options = options;
    this.#subscriptions = new Map(options.subscriptions.map(each => [each.name, each]));
    this.#documents = new Map(options.documents.map(each => [each.name, each]));
    this.bus = new EmbeddedBus({
      ...RETRY,
      database: options.database.connection,
      deliver: delivery => this.#deliver(delivery),
      retention_s: name =>
        this.#documents.has(name) ? EVENT_RETENTION_S : this.#subscriptions.get(name)?.retention_s,
      now: Date.now,
      random: options.random,
      trouble: options.trouble,
    });
  }

  /** True if every function of the topic listens. */
  isReady(topic: string): boolean {
    return this.#receiversOf(topic).every(each => this.#options.portOf(each) !== undefined);
  }

  #receiversOf(topic: string): Subscription[] {
    return this.#options.subscriptions.filter(subscription => subscription.topic === topic);
  }

  /** Runs inside the transaction that creates the object. */
  objectFinalized(bucket: string, resource: JsonObject): void {
    const name = String(resource.name);
    const {deployments, notifications} = this.#options;
    for (const {name: deployment} of deployments.filter(each => each.bucket === bucket))
      for (const [index, {topic, event, prefixes}] of notifications.entries())
        if (prefixes.some(prefix => name.startsWith(prefix)))
          this.#send(nameIn(deployment, topic), 'object', this.bus.newId(), {
            data: Buffer.from(JSON.stringify(resource)).toString('base64'),
            attributes: {
              notificationConfig: `projects/_/buckets/${bucket}/notificationConfigs/${index + 1}`,
              ...{eventType: event, payloadFormat: 'JSON_API_V1', bucketId: bucket, objectId: name},
              ...{objectGeneration: String(resource.generation), eventTime: String(resource.updated)},
            },
          });
  }

  /** Sends the event of a new document to its function. */
  documentCreated({name}: DocumentTrigger, event: DocumentEvent): void {
    this.#options.database.transaction(() =>
      this.#enqueue([name], 'document', randomUUID(), event as Document),
    );
  }

  /** Stores all messages or none, and returns their ids. */
  publish(topic: string, messages: PubsubMessage[]): string[] {
    return this.#options.database.transaction(() =>
      messages.map(message => {
        const id = this.bus.newId();
        this.#send(topic, topic, id, message);
        return id;
      }),
    );
  }

  /** `target` names this message in faults: `object`, or the topic. */
  #send(topic: string, target: string, id: string, message: PubsubMessage): void {
    const receivers = this.#options.forward
      ? [FORWARD + topic]
      : this.#receiversOf(topic).map(({name}) => name);
    this.#enqueue(receivers, target, id, message as Document);
  }

  #enqueue(receivers: string[], target: string, id: string, message: Document): void {
    const {faults, random, database} = this.#options;
    const befalls = (kind: 'drop' | 'double' | 'reorder') => random() < faults.rate(kind, target);
    for (const receiver of receivers) {
      if (befalls('drop')) {
        database.run(
          'INSERT INTO dropped_events (function, target, event, dropped_at) VALUES (?, ?, ?, ?)',
          ...[receiver, target, JSON.stringify({id, ...message}), new Date().toISOString()],
        );
        continue;
      }
      const copies = befalls('double') ? 2 : 1;
      for (let copy = 0; copy < copies; copy++) {
        const delay_ms = befalls('reorder') ? Math.round(random() * reorder_ms) : 0;
        this.bus.enqueue(receiver, message, {id, delay_ms});
      }
    }
  }

  async #deliver({id, topic: receiver, message, published_at, attempt}: Delivery): Promise<void> {
    const {project, portOf, token, forward} = this.#options;
    if (receiver.startsWith(FORWARD)) {
      if (!forward) throw new ReceiverAway("Google's Pub/Sub emulator is down");
      return forward(receiver.slice(FORWARD.length), message as PubsubMessage);
    }
    const trigger = this.#documents.get(receiver);
    const subscription = this.#subscriptions.get(receiver);
    const at = trigger ?? subscription;
    // Messages of a subscription are dropped with the subscription.
    if (!at) return;
    const port = portOf(at);
    if (port === undefined) throw new ReceiverAway(`The host of ${at.function} is down`);
    if (trigger) {
      const request = documentRequest(id, message as unknown as DocumentEvent, project);
      return postEvent({...trigger, ...request, path: '/', port, token});
    }
    if (!subscription) return;
    const pushed = {id, published_at, attempt, message: message as PubsubMessage};
    await pushMessage({...pushed, subscription, project, port, token});
  }
}
