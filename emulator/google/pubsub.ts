import {buffer} from 'node:stream/consumers';
import {nameIn} from '../../shared/domain/deployment.ts';
import type {PubsubMessage} from '../functions/push.ts';
import {ACK_DEADLINE_S, RETRY, type Subscription} from '../functions/subscriptions.ts';
import {ApiError} from '../http/errors.ts';
import type {Handler, Route} from '../http/http.ts';

const limit_ms = 10_000;
const seconds = (ms: number) => `${ms / 1000}s`;

/** Topics, subscriptions and messages on Google's Pub/Sub emulator, through its REST API. */
export class GooglePubsub {
  readonly #base: string;
  readonly #project: string;
  readonly #push_token: string;

  constructor(options: {host: string; project: string; push_token: string}) {
    this.#base = `http://${options.host}`;
    this.#project = options.project;
    this.#push_token = options.push_token;
  }

  /** Creates the topics of each deployment, and its dead letters with a subscription that keeps them. */
  async createTopics(topics: string[], deployments: string[]): Promise<void> {
    for (const topic of topics) await this.#call('PUT', `topics/${topic}`, {});
    for (const deployment of deployments) {
      const topic = nameIn(deployment, 'dead');
      await this.#call('PUT', `topics/${topic}`, {});
      await this.#call('PUT', `subscriptions/${deployment}-dead`, {topic: this.#name('topics', topic)});
    }
  }

  /** Points the subscription of a function at its port. The first call creates the subscription as Terraform does. */
  async connect(subscription: Subscription, port: number, retry = RETRY): Promise<void> {
    const {name, topic, deployment, retention_s} = subscription;
    const path = `/projects/${this.#project}/topics/${topic}`;
    const pushConfig = {pushEndpoint: `http://127.0.0.1:${port}${path}?token=${this.#push_token}`};
    const {max_attempts, min_backoff_ms, max_backoff_ms} = retry;
    const made = await this.#call('PUT', `subscriptions/${name}`, {
      ...{topic: this.#name('topics', topic), pushConfig, ackDeadlineSeconds: ACK_DEADLINE_S},
      retryPolicy: {minimumBackoff: seconds(min_backoff_ms), maximumBackoff: seconds(max_backoff_ms)},
      ...(retention_s === undefined
        ? {
            deadLetterPolicy: {
              deadLetterTopic: this.#name('topics', nameIn(deployment, 'dead')),
              maxDeliveryAttempts: max_attempts,
            },
          }
        : {messageRetentionDuration: `${retention_s}s`}),
    });
    if (made === 'exists') await this.#call('POST', `subscriptions/${name}:modifyPushConfig`, {pushConfig});
  }

  async publish(topic: string, message: PubsubMessage): Promise<void> {
    await this.#call('POST', `topics/${topic}:publish`, {messages: [message]});
  }

  #name(kind: 'topics' | 'subscriptions', name: string): string {
    return `projects/${this.#project}/${kind}/${name}`;
  }

  async #call(method: string, path: string, body: object): Promise<'done' | 'exists'> {
    const answer = await fetch(`${this.#base}/v1/projects/${this.#project}/${path}`, {
      method,
      headers: {'content-type': 'application/json'},
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(limit_ms),
    });
    const text = await answer.text();
    if (answer.ok) return 'done';
    if (method === 'PUT' && answer.status === 409) return 'exists';
    throw new Error(`Google's Pub/Sub emulator answered ${method} ${path} with ${answer.status}: ${text}`);
  }

  /** Passes requests to the emulator, so that gcloud needs one address for all services. */
  routes(): Route[] {
    const kinds = ['topics', 'subscriptions'];
    const paths = kinds.flatMap(kind => [kind, `${kind}/{rest...}`]);
    return paths.map(path => ['*', `/v1/projects/{project}/${path}`, this.#pass] as const);
  }

  readonly #pass: Handler = async ({method, path, query, body}) => {
    const content = await buffer(body);
    const search = query.size > 0 ? `?${query}` : '';
    try {
      const answer = await fetch(`${this.#base}${path}${search}`, {
        method,
        headers: {'content-type': 'application/json'},
        body: content.length > 0 ? content : null,
      });
      const headers = {'content-type': answer.headers.get('content-type') ?? 'application/json'};
      return {status: answer.status, headers, body: Buffer.from(await answer.arrayBuffer())};
    } catch (cause) {
      throw new ApiError(503, "Google's Pub/Sub emulator gives no answer; try again", {cause});
    }
  };
}
