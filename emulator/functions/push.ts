import {once} from 'node:events';
import {Agent, request as httpRequest, type IncomingMessage} from 'node:http';
import {text} from 'node:stream/consumers';
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

/** Connections to the hosts of the functions, which close none. */
export const toFunctions = new Agent({keepAlive: true});

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
  let response: IncomingMessage;
  let said: string;
  try {
    const signal = AbortSignal.timeout(timeout_s * 1000);
    const target = {host: '127.0.0.1', port, path, method: 'POST', agent: toFunctions, signal};
    const sent = httpRequest({...target, headers: {...headers, [HOST_HEADER]: token}}).end(body);
    // An error after the response ends the response too.
    sent.on('error', () => {});
    [response] = await once(sent, 'response');
    said = await text(response);
  } catch (error) {
    const {message: reason, code} = error as Error & {code?: string};
    if (code === 'ECONNREFUSED') throw new ReceiverAway(`The host of ${name} is down`, {cause: error});
    throw new Error(`${name} did not answer: ${reason}`);
  }
  if (!ACKNOWLEDGED.includes(response.statusCode ?? 0))
    throw new Error(`${name} answered ${response.statusCode}: ${said.slice(0, 500)}`);
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
