import {ReceiverAway} from '../delivery/embedded-bus.ts';
import {HOST_HEADER} from '../http/guard.ts';
import type {Subscription} from './subscriptions.ts';

export type PubsubMessage = {data: string; attributes: Record<string, string>; orderingKey?: string};

/** An attempt to push a message. */
export type Push = {
  message: PubsubMessage;
  id: string;
  published_at: string;
  attempt: number;
  subscription: Subscription;
  project: string;
  /** Port of the function. */
  port: number;
  /** Token that the host of the functions requires. */
  token: string;
};

/** Answers that acknowledge a push. */
const ACKNOWLEDGED = [102, 200, 201, 202, 204];

/** Sends a message to a function as Pub/Sub does. */
export async function pushMessage(push: Push): Promise<void> {
  const {subscription, project, port, token} = push;
  // Functions-framework reads the topic from this path, and turns the push into a CloudEvent.
  const path = `/projects/${project}/topics/${subscription.topic}`;
  const headers = {'content-type': 'application/json'};
  await postEvent({...subscription, port, token, path, headers, body: JSON.stringify(envelopeOf(push))});
}

/**
 * Posts an event to a function. Returns when the function acknowledges it. Throws `ReceiverAway` if no host listens, and another error if the
 * function refuses.
 */
export async function postEvent(request: {
  function: string;
  timeout_s: number;
  port: number;
  token: string;
  path: string;
  headers: Record<string, string>;
  body: string | Buffer<ArrayBuffer>;
}): Promise<void> {
  const {function: name, timeout_s, port, token, path, headers, body} = request;
  let response: Response;
  try {
    response = await fetch(`http://127.0.0.1:${port}${path}`, {
      method: 'POST',
      headers: {...headers, [HOST_HEADER]: token},
      body,
      redirect: 'manual',
      signal: AbortSignal.timeout(timeout_s * 1000),
    });
  } catch (error) {
    const {message: reason, cause} = error as Error & {cause?: {code?: string; message?: string}};
    if (cause?.code === 'ECONNREFUSED') throw new ReceiverAway(`The host of ${name} is down`, {cause: error});
    throw new Error(`${name} did not answer: ${reason}${cause?.message ? ` (${cause.message})` : ''}`);
  }
  const text = await response.text();
  if (!ACKNOWLEDGED.includes(response.status))
    throw new Error(`${name} answered ${response.status}: ${text.slice(0, 500)}`);
}

/** Body of a push, with the names of Pub/Sub in both spellings. */
function envelopeOf({message, id, published_at, attempt, subscription, project}: Push): object {
  return {
    message: {
      ...message,
      ...{messageId: id, message_id: id, publishTime: published_at, publish_time: published_at},
    },
    subscription: `projects/${project}/subscriptions/${subscription.name}`,
    ...(subscription.retention_s === undefined ? {deliveryAttempt: attempt} : {}),
  };
}
