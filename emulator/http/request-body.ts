import type {Readable} from 'node:stream';
import {ApiError} from './errors.ts';
import {isObject, type Json, type JsonObject} from './json.ts';

export function parseJson(text: string, what: string): JsonObject {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new ApiError(400, `Failed to parse ${what}: ${(error as Error).message}; send a JSON object`, {
      reason: 'parseError',
    });
  }
  if (!isObject(value)) {
    throw new ApiError(400, `Failed to parse ${what}: it is not a JSON object`, {reason: 'parseError'});
  }
  return value;
}

/** Chunks of a request body. Stopping early keeps the connection open for the answer. */
export function chunksOf(body: Readable): AsyncIterable<Buffer> {
  return body.iterator({destroyOnReturn: false});
}

export async function readBytes(body: Readable, limit: number, what: string): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of chunksOf(body)) {
    size += chunk.length;
    if (size > limit) throw new ApiError(413, `Failed to read ${what}: it is larger than ${limit} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

/** Request body as a JSON object; an absent body is an empty object. */
export async function readJson(body: Readable, limit = 1 << 20): Promise<JsonObject> {
  const bytes = await readBytes(body, limit, 'the request body');
  return bytes.length === 0 ? {} : parseJson(bytes.toString('utf8'), 'the request body');
}

/** Map of strings; undefined for an absent field. Answers 400 to any other value. */
export function stringMap(value: Json | undefined, field: string): Record<string, string> | undefined {
  if (value === undefined || value === null) return undefined;
  if (!isObject(value) || !Object.values(value).every(entry => typeof entry === 'string')) {
    throw new ApiError(400, `Invalid value for ${field}: it must be an object whose values are strings`);
  }
  return value as Record<string, string>;
}

export function optionalString(value: Json | undefined, field: string): string | undefined {
  if (value === undefined || value === null) return undefined;
  if (typeof value !== 'string') throw new ApiError(400, `Invalid value for ${field}: it must be a string`);
  return value;
}
