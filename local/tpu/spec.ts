import {ApiError} from '../errors.ts';
import {isObject, type Json, type JsonObject, optionalString, stringMap} from '../json.ts';
import {acceleratorTypes, runtimeVersions} from './catalog.ts';

/** What a user asks for in a node, under the API's own names. */
export type NodeSpec = {
  acceleratorType: string;
  runtimeVersion: string;
  description?: string;
  labels: Record<string, string>;
  metadata: Record<string, string>;
  schedulingConfig: JsonObject;
  tags?: Json;
  networkConfig?: JsonObject;
  serviceAccount?: JsonObject;
};

export function parseNode(name: string, body: JsonObject): NodeSpec {
  if (!/^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$/.test(name)) {
    throw new ApiError(400, `Invalid node id "${name}": use 1 to 63 of a-z, 0-9 and "-", a letter first`);
  }
  const acceleratorType = optionalString(body.acceleratorType, 'acceleratorType') ?? 'v2-8';
  if (!acceleratorTypes.includes(acceleratorType)) {
    throw new ApiError(
      400,
      `Invalid acceleratorType "${acceleratorType}"; the local cloud has slices of one host: ${acceleratorTypes.join(', ')}`,
    );
  }
  const runtimeVersion = optionalString(body.runtimeVersion, 'runtimeVersion') ?? '';
  if (!runtimeVersions.includes(runtimeVersion)) {
    throw new ApiError(
      400,
      `Invalid runtimeVersion "${runtimeVersion}"; it is one of ${runtimeVersions.join(', ')}`,
    );
  }
  const description = optionalString(body.description, 'description');
  const metadata = stringMap(body.metadata, 'metadata') ?? {};
  const size = Object.entries(metadata).reduce(
    (sum, [key, value]) => sum + Buffer.byteLength(key + value),
    0,
  );
  if (size > 512 * 1024)
    throw new ApiError(400, `Invalid value for metadata: ${size} bytes, and 512 KiB is the limit`);
  return {
    acceleratorType,
    runtimeVersion,
    ...(description === undefined ? {} : {description}),
    labels: checkedLabels(stringMap(body.labels, 'labels') ?? {}),
    metadata,
    schedulingConfig: isObject(body.schedulingConfig) ? body.schedulingConfig : {},
    ...(Array.isArray(body.tags) ? {tags: body.tags} : {}),
    ...(isObject(body.networkConfig) ? {networkConfig: body.networkConfig} : {}),
    ...(isObject(body.serviceAccount) ? {serviceAccount: body.serviceAccount} : {}),
  };
}

function checkedLabels(labels: Record<string, string>): Record<string, string> {
  for (const [key, value] of Object.entries(labels)) {
    if (/^[a-z][a-z0-9_-]{0,62}$/.test(key) && /^[a-z0-9_-]{0,63}$/.test(value)) continue;
    throw new ApiError(400, `Invalid label ${key}="${value}": use up to 63 of a-z, 0-9, "_" and "-"`);
  }
  return labels;
}
