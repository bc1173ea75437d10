export type Json = string | number | boolean | null | Json[] | JsonObject;
export type JsonObject = {[key: string]: Json | undefined};

export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
