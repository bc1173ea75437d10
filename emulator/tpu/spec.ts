import {hostsOfType} from '../../shared/domain/fleet/accelerators.ts';
import {ApiError} from '../http/errors.ts';
import {isObject, type Json, type JsonObject} from '../http/json.ts';
import {optionalString, stringMap} from '../http/request-body.ts';
import {labelsIn, NAME} from '../vm/spec-fields.ts';
import {acceleratorTypes, LOCAL_HOSTS, runtimeVersions} from './catalog.ts';

/** Writable fields of a node, under the names of the API. */
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
  if (!NAME.test(name)) {
    throw new ApiError(400, `Invalid node id "${name}": use 1 to 63 of a-z, 0-9 and "-", a letter first`);
  }
  const acceleratorType = optionalString(body.acceleratorType, 'acceleratorType') ?? 'v2-8';
  if (!acceleratorTypes.includes(acceleratorType)) {
    throw new ApiError(
      400,
      `Invalid acceleratorType "${acceleratorType}"; the local cloud has types of up to ${LOCAL_HOSTS} hosts: ${acceleratorTypes.join(', ')}`,
    );
  }
  if (hostsOfType(acceleratorType) > 1 && process.platform !== 'linux') {
    const why = 'each host needs a loopback address of its own, which this system lacks';
    throw new ApiError(400, `Invalid acceleratorType "${acceleratorType}": ${why}; use a type of one host`);
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
    labels: labelsIn(body),
    metadata,
    schedulingConfig: isObject(body.schedulingConfig) ? body.schedulingConfig : {},
    ...(Array.isArray(body.tags) ? {tags: body.tags} : {}),
    ...(isObject(body.networkConfig) ? {networkConfig: body.networkConfig} : {}),
    ...(isObject(body.serviceAccount) ? {serviceAccount: body.serviceAccount} : {}),
  };
}

/** Writable fields of a queued resource of one node. */
export type QueuedSpec = {
  node_id: string;
  /** Node in the form that `parseNode` reads. */
  node: JsonObject;
  /** Tier and queueing policy of the request, unchanged. */
  shown: JsonObject;
  /** Deadline for the node in milliseconds since 1970; null without a deadline. */
  valid_until: number | null;
};

export function parseQueuedResource(name: string, body: JsonObject): QueuedSpec {
  if (!/^[A-Za-z0-9_.~+%-]+$/.test(name))
    throw new ApiError(400, `Invalid queued resource id "${name}": use a-z, 0-9, "_", ".", "~", "+" and "-"`);
  const specs = isObject(body.tpu) ? body.tpu.nodeSpec : undefined;
  const [spec] = Array.isArray(specs) ? specs : [];
  if (!isObject(spec) || !isObject(spec.node) || !Array.isArray(specs) || specs.length !== 1)
    throw new ApiError(400, 'Invalid tpu.nodeSpec: the local cloud has queued resources of exactly one node');
  const {queueingPolicy, spot, guaranteed, reservationName} = body;
  const scheduling = isObject(spec.node.schedulingConfig) ? spec.node.schedulingConfig : {};
  return {
    node_id: optionalString(spec.nodeId, 'tpu.nodeSpec.nodeId') ?? name,
    node: {...spec.node, schedulingConfig: {...scheduling, ...(isObject(spot) ? {spot: true} : {})}},
    shown: {
      ...(isObject(spot) ? {spot} : {}),
      ...(isObject(guaranteed) ? {guaranteed} : {}),
      ...(isObject(queueingPolicy) ? {queueingPolicy} : {}),
      ...(typeof reservationName === 'string' ? {reservationName} : {}),
    },
    valid_until: isObject(queueingPolicy) ? endOf(queueingPolicy) : null,
  };
}

function endOf(policy: JsonObject): number | null {
  const {validUntilTime, validUntilDuration, validInterval} = policy;
  if (typeof validUntilDuration === 'string') {
    const seconds = /^(\d+(?:\.\d+)?)s$/.exec(validUntilDuration)?.[1];
    if (seconds === undefined)
      throw new ApiError(
        400,
        `Invalid validUntilDuration "${validUntilDuration}": give seconds, as in 3600s`,
      );
    return Date.now() + Number(seconds) * 1000;
  }
  const end = isObject(validInterval) ? validInterval.endTime : validUntilTime;
  if (end === undefined || end === null) return null;
  const ms = Date.parse(String(end));
  if (Number.isNaN(ms)) throw new ApiError(400, `Invalid time "${end}" in queueingPolicy: use RFC 3339`);
  if (ms <= Date.now())
    throw new ApiError(400, `Invalid time "${end}" in queueingPolicy: the time is in the past`);
  return ms;
}
