/** Messages that a Pub/Sub push subscription delivers. */
import {createHash} from 'node:crypto';
import {z} from 'zod';
import {parseValue} from './schemas.ts';

export type Push = {
  /** Id of the message; for a message without an id, its digest. */
  id: string;
  text: string;
  attributes: Record<string, string>;
  /** Publish time in milliseconds; undefined for a push without a valid time. */
  published_at: string | undefined;
};

/** Rounds down to milliseconds: Pub/Sub writes up to nine digits of a second. */
const publishTime = z.iso
  .datetime({offset: true})
  .transform(text => new Date(text).toISOString())
  .optional()
  .catch(undefined);

const BASE64 = /^[A-Za-z0-9+/_-]*={0,2}$/;

const push = z
  .object({
    message: z.object({
      data: z.string().regex(BASE64, 'base64').optional(),
      publishTime,
      attributes: z.record(z.string(), z.string()).optional(),
    }),
  })
  .transform(({message}) => ({
    text: Buffer.from(message.data ?? '', 'base64').toString('utf8'),
    published_at: message.publishTime,
    attributes: message.attributes ?? {},
  }));

/**
 * Reads the message of an event. Functions-framework turns a push into a CloudEvent, but passes on the body of a push without data or without
 * an id unchanged. Throws `Rejected` if the event has no message.
 */
export function readPush(event: unknown, what = 'The event'): Push {
  return {id: pushId(event), ...parseValue(push, envelopeOf(event), what)};
}

/** Id of the message of an event. The same event has the same id at each delivery. */
export function pushId(event: unknown): string {
  const message = fieldOf(envelopeOf(event), 'message');
  const ids = [fieldOf(event, 'id'), fieldOf(message, 'messageId'), fieldOf(message, 'message_id')];
  const id = ids.find(id => typeof id === 'string' && id !== '');
  // The rest of the push, such as deliveryAttempt, differs between deliveries.
  const digest = () =>
    createHash('sha256')
      .update(rawText(message ?? event))
      .digest('hex');
  return (id as string | undefined) ?? digest();
}

export const rawText = (event: unknown) => JSON.stringify(event) ?? '';

/** Body of the push: the data of a CloudEvent, or the event itself. */
function envelopeOf(event: unknown): unknown {
  return fieldOf(event, 'message') === undefined ? fieldOf(event, 'data') : event;
}

function fieldOf(value: unknown, field: string): unknown {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>)[field] : undefined;
}

const objectNotification = z.object({
  eventType: z.string(),
  bucketId: z.string().min(1).max(256),
  objectId: z.string().min(1).max(1024),
  objectGeneration: z.string().regex(/^\d{1,19}$/, 'expected 1 to 19 digits'),
});

/**
 * Reads the attributes of a notification of Cloud Storage; undefined unless the event is a new object. The name comes from the attributes,
 * because a notification may lack the resource of the object.
 */
export function readNotification({attributes}: Push): {bucket: string; name: string} | undefined {
  const {eventType, bucketId, objectId} = parseValue(
    objectNotification,
    attributes,
    'The notification of an object',
  );
  return eventType === 'OBJECT_FINALIZE' ? {bucket: bucketId, name: objectId} : undefined;
}
