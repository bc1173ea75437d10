import type {PubSub, Topic} from '@google-cloud/pubsub';
import {ServiceError} from '../contracts/errors.ts';
import {RELEASE} from '../contracts/settings/config.ts';
import {DEFAULT_DEPLOYMENT, nameIn} from '../domain/deployment.ts';
import type {Bus, Document} from '../ports/ports.ts';
import {isNotFound, isPermission, withAdvice} from './errors.ts';
import {memoizeAsync} from './memoize-async.ts';

type BusOptions = {
  project: string;
  /** Deployment to which the topics belong; by default the default one. */
  deployment?: string | undefined;
  /** Token for the Pub/Sub of a local cloud: the client sends no credentials to PUBSUB_EMULATOR_HOST. */
  token?: string | undefined;
  /** Limit of a publish including retries. The client's own limit of 10 minutes is longer than a function runs. */
  deadline_ms?: number;
};

/** Pub/Sub. PUBSUB_EMULATOR_HOST points the client at Google's emulator. */
export function openBus({
  project,
  deployment = DEFAULT_DEPLOYMENT,
  token,
  deadline_ms = 10_000,
}: BusOptions): Bus {
  const open = memoizeAsync(async () => {
    const {PubSub} = (await import('@google-cloud/pubsub')).default;
    return new PubSub({projectId: project});
  });
  const topics = new Map<string, Topic>();
  return {
    async publish(name: string, message: Document): Promise<string> {
      const topic = nameIn(deployment, name);
      const opened = topics.get(topic) ?? openTopic(await open(), topic, deadline_ms, token);
      topics.set(topic, opened);
      try {
        return await opened.publishMessage({json: message, attributes: {release: RELEASE}});
      } catch (cause) {
        throw new ServiceError(publishProblem(topic, cause), {cause});
      }
    },
  };
}

export function publishProblem(topic: string, cause: unknown): string {
  const advice = isNotFound(cause)
    ? 'apply the Terraform, which makes the topics'
    : isPermission(cause)
      ? `grant the calling account roles/pubsub.publisher on ${topic}`
      : undefined;
  return `Failed to publish to ${topic}: ${withAdvice(cause, advice)}`;
}

function openTopic(pubsub: PubSub, topic: string, deadline_ms: number, token: string | undefined): Topic {
  return pubsub.topic(topic, {
    // A function publishes one message, so waiting for more messages would only delay it.
    batching: {maxMessages: 1},
    gaxOpts: {
      timeout: deadline_ms,
      ...(token ? {otherArgs: {headers: {authorization: `Bearer ${token}`}}} : {}),
      retry: {
        backoffSettings: {
          initialRetryDelayMillis: 100,
          retryDelayMultiplier: 2,
          maxRetryDelayMillis: 2000,
          initialRpcTimeoutMillis: 5000,
          rpcTimeoutMultiplier: 1,
          maxRpcTimeoutMillis: 5000,
          totalTimeoutMillis: deadline_ms,
        },
      },
    },
  });
}
