/**
 * Documents as Firestore stores them: our instants (`*_at`) are timestamps, for the console and for TTL policies.
 * Every document has passed `checkDocument` before its conversion.
 */
import type {Timestamp} from '@google-cloud/firestore';
import {isInstantField} from '../ports/document-limits.ts';
import type {Document, Value} from '../ports/ports.ts';

type TimestampClass = typeof Timestamp;

export function toFirestore(document: Document, timestamp: TimestampClass): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(document).map(([field, value]) => [field, fieldToFirestore(field, value, timestamp)]),
  );
}

export function fieldToFirestore(field: string, value: Value, timestamp: TimestampClass): unknown {
  if (typeof value === 'string' && isInstantField(field)) return timestamp.fromMillis(Date.parse(value));
  if (Array.isArray(value)) return value.map(item => fieldToFirestore('', item, timestamp));
  if (typeof value === 'object' && value !== null) return toFirestore(value, timestamp);
  return value === 0 ? 0 : value; // JSON has no -0
}

/**
 * Converts every value to the closest JSON. People edit documents in the console and store values that we never write.
 * A foreign value must not fail a whole query: the parser of the document reports it.
 */
export function fromFirestore(data: Record<string, unknown>): Document {
  return Object.fromEntries(Object.entries(data).map(([field, value]) => [field, valueFromFirestore(value)]));
}

function valueFromFirestore(value: unknown): Value {
  if (value === null || typeof value === 'string' || typeof value === 'boolean') return value;
  if (typeof value === 'number') return Number.isFinite(value) ? value : String(value);
  if (Array.isArray(value)) return value.map(valueFromFirestore);
  if (value instanceof Uint8Array) return Buffer.from(value).toString('base64');
  const {toMillis, toArray, latitude, longitude, path} = value as ForeignValue;
  if (toMillis) return new Date(toMillis.call(value)).toISOString();
  if (toArray) return toArray.call(value);
  if (Object.getPrototypeOf(value) === Object.prototype)
    return fromFirestore(value as Record<string, unknown>);
  if (latitude !== undefined && longitude !== undefined) return {latitude, longitude};
  return path ?? String(value);
}

/** Timestamp, VectorValue, GeoPoint and DocumentReference, by their distinctive fields. */
type ForeignValue = {
  toMillis?: () => number;
  toArray?: () => number[];
  latitude?: number;
  longitude?: number;
  path?: string;
};
