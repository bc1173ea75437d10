import {ApiError} from '../http/errors.ts';
import type {JsonObject} from '../http/json.ts';
import {stringMap} from '../http/request-body.ts';

export const NAME = /^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$/;

export function labelsIn(body: JsonObject): Record<string, string> {
  const labels = stringMap(body.labels, 'labels') ?? {};
  for (const [key, value] of Object.entries(labels)) {
    if (/^[a-z][a-z0-9_-]{0,62}$/.test(key) && /^[a-z0-9_-]{0,63}$/.test(value)) continue;
    throw new ApiError(400, `Invalid label ${key}="${value}": use up to 63 of a-z, 0-9, "_" and "-"`);
  }
  return labels;
}
