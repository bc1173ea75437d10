/** Instances as `instances.insert` of Compute Engine accepts them: machines with TPUs of one host, and nothing else. */
import {IMAGE_FAMILIES} from '../../shared/domain/fleet/accelerators.ts';
import {
  acceleratorOf,
  diskTypeOf,
  INSTANCE_TYPES,
  machineTypeOf,
} from '../../shared/domain/records/providers.ts';
import {ApiError} from '../http/errors.ts';
import {isObject, type Json, type JsonObject} from '../http/json.ts';
import {optionalString} from '../http/request-body.ts';
import {labelsIn, NAME} from '../vm/spec-fields.ts';
import {DEFAULT_ACCOUNT} from '../vm/vm-spec.ts';

/** Writable fields of an instance, under the names of the API. */
export type InstanceSpec = {
  machine_type: string;
  labels: Record<string, string>;
  metadata: Record<string, string>;
  scheduling: JsonObject;
  email: string;
  network: JsonObject;
  disk: {source_image: string; type: string; size_gb: number};
  /** Times in milliseconds: how long it may run, and how long a flex-start instance waits. */
  run_ms: number | null;
  wait_ms: number | null;
  /** Time from the notice of a preemption to its signal; null if both come at once. */
  notice_ms: number | null;
  deletes_itself: boolean;
};

const FIELDS = [
  ...['name', 'description', 'machineType', 'labels', 'metadata', 'disks', 'networkInterfaces'],
  ...['serviceAccounts', 'scheduling', 'reservationAffinity', 'params', 'tags', 'resourcePolicies'],
];
const DAY_S = 86_400;
/** Size that the images and packages of 2026 need. */
const SMALLEST_DISK_GB = 10;

function invalid(field: string, value: unknown, why: string): ApiError {
  return new ApiError(400, `Invalid value for field 'resource.${field}': '${String(value)}'. ${why}`);
}

export function nameIn(body: JsonObject): string {
  const name = typeof body.name === 'string' ? body.name : '';
  if (NAME.test(name)) return name;
  throw invalid('name', name, "Must be a match of regex '(?:[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)'");
}

export function parseInstance(zone: string, body: JsonObject): InstanceSpec {
  const unknown = Object.keys(body).find(key => !FIELDS.includes(key));
  if (unknown !== undefined)
    throw new ApiError(
      400,
      `Invalid JSON payload received. Unknown name "${unknown}": the local cloud has no such field`,
    );
  const machine_type = machineTypeIn(zone, optionalString(body.machineType, 'machineType') ?? '');
  const scheduling = isObject(body.scheduling) ? body.scheduling : {};
  const limits = schedulingLimits(scheduling, body);
  return {
    machine_type,
    labels: labelsIn(body),
    metadata: metadataIn(body.metadata),
    scheduling,
    email: accountIn(body.serviceAccounts),
    network: networkIn(body.networkInterfaces),
    disk: diskIn(zone, machine_type, body.disks),
    ...limits,
  };
}

/** A path of the zone, or an address that ends with one. */
function inZone(zone: string, kind: string, path: string, field: string): string {
  const [, place, name] = new RegExp(`(?:^|/)zones/([^/]+)/${kind}/([^/]+)$`).exec(path) ?? [];
  if (place === undefined || name === undefined)
    throw invalid(field, path, `The URL is malformed: name zones/${zone}/${kind}/NAME`);
  if (place !== zone) throw invalid(field, path, `It is not in zone ${zone}`);
  return name;
}

function machineTypeIn(zone: string, path: string): string {
  const name = inZone(zone, 'machineTypes', path, 'machineType');
  if (acceleratorOf(name)) return name;
  const known = INSTANCE_TYPES.map(machineTypeOf).join(', ');
  throw invalid('machineType', path, `The local cloud has ${known}`);
}

function diskIn(zone: string, machine_type: string, disks: Json | undefined): InstanceSpec['disk'] {
  const [disk] = Array.isArray(disks) ? disks : [];
  if (!isObject(disk) || disk.boot !== true) throw invalid('disks', '', 'At least one boot disk is required');
  if (!Array.isArray(disks) || disks.length !== 1)
    throw invalid('disks', '', 'The local cloud has instances with one disk');
  const initial = isObject(disk.initializeParams) ? disk.initializeParams : {};
  const source_image = optionalString(initial.sourceImage, 'disks[0].initializeParams.sourceImage') ?? '';
  const family = /^(?:.*\/)?projects\/ubuntu-os-accelerator-images\/global\/images\/family\/([^/]+)$/.exec(
    source_image,
  )?.[1];
  const isOwn = /(^|\/)projects\/(?!ubuntu-os-accelerator-images\/)[^/]+\/global\/images\/(family\/)?[^/]+$/;
  if (!IMAGE_FAMILIES.includes(family ?? '') && !isOwn.test(source_image))
    throw invalid(
      'disks[0].initializeParams.sourceImage',
      source_image,
      'The referenced image resource cannot be found',
    );
  const path = optionalString(initial.diskType, 'disks[0].initializeParams.diskType');
  const type =
    path === undefined
      ? 'pd-standard'
      : inZone(zone, 'diskTypes', path, 'disks[0].initializeParams.diskType');
  const needed = diskTypeOf(acceleratorOf(machine_type) ?? '');
  if (type !== needed)
    throw new ApiError(
      400,
      `[${type}] features are not compatible for creating instance: ${machine_type} has ${needed}`,
    );
  const size_gb = Number(initial.diskSizeGb ?? SMALLEST_DISK_GB);
  if (!Number.isInteger(size_gb) || size_gb < SMALLEST_DISK_GB)
    throw invalid(
      'disks[0].initializeParams.diskSizeGb',
      initial.diskSizeGb,
      `The image needs ${SMALLEST_DISK_GB} GB`,
    );
  return {source_image, type, size_gb};
}

function networkIn(interfaces: Json | undefined): JsonObject {
  const [first] = Array.isArray(interfaces) ? interfaces : [];
  if (!isObject(first)) throw invalid('networkInterfaces', '', 'At least one network interface is required');
  if (first.network === undefined && first.subnetwork === undefined)
    throw invalid('networkInterfaces[0]', '', 'It names neither a network nor a subnetwork');
  return first;
}

/** An instance without an account gets no token. */
function accountIn(accounts: Json | undefined): string {
  const [first] = Array.isArray(accounts) ? accounts : [];
  if (!isObject(first)) return '';
  if (!Array.isArray(accounts) || accounts.length > 1)
    throw invalid('serviceAccounts', '', 'At most one service account is allowed');
  const email = optionalString(first.email, 'serviceAccounts[0].email') ?? '';
  if (!Array.isArray(first.scopes) || first.scopes.length === 0)
    throw invalid('serviceAccounts[0].scopes', '', 'At least one scope is required');
  return email === 'default' ? DEFAULT_ACCOUNT : email;
}

function metadataIn(metadata: Json | undefined): Record<string, string> {
  const items = isObject(metadata) ? (metadata.items ?? []) : [];
  if (!Array.isArray(items)) throw invalid('metadata.items', items, 'It must be a list');
  const values: Record<string, string> = {};
  let size = 0;
  for (const item of items) {
    const {key, value} = isObject(item) ? item : {};
    if (typeof key !== 'string' || typeof value !== 'string' || !/^[a-zA-Z0-9_-]{1,128}$/.test(key))
      throw invalid('metadata.items', JSON.stringify(item), 'Each item has a key and a value');
    if (Object.hasOwn(values, key)) throw invalid('metadata.items', key, `The key "${key}" comes twice`);
    if (Buffer.byteLength(value) > 256 * 1024)
      throw invalid('metadata.items', key, 'A value has at most 262144 bytes');
    size += Buffer.byteLength(key + value);
    values[key] = value;
  }
  if (size > 512 * 1024) throw invalid('metadata', `${size} bytes`, 'All metadata have at most 524288 bytes');
  return values;
}

function secondsOf(duration: Json | undefined, field: string): number | null {
  if (duration === undefined || duration === null) return null;
  const seconds = isObject(duration) ? Number(duration.seconds) : Number.NaN;
  if (!Number.isSafeInteger(seconds) || seconds < 0)
    throw invalid(field, JSON.stringify(duration), 'It has no seconds');
  return seconds;
}

/** Rules of Compute Engine for machines that cannot move, for Spot VMs, for limited lives and for flex-start. */
function schedulingLimits(scheduling: JsonObject, body: JsonObject) {
  const model = optionalString(scheduling.provisioningModel, 'scheduling.provisioningModel') ?? 'STANDARD';
  const action = optionalString(scheduling.instanceTerminationAction, 'scheduling.instanceTerminationAction');
  const refuse = (field: string, value: unknown, why: string) => {
    throw invalid(`scheduling.${field}`, value, why);
  };
  if (!['STANDARD', 'SPOT', 'FLEX_START'].includes(model))
    refuse('provisioningModel', model, 'The local cloud has STANDARD, SPOT and FLEX_START');
  if (scheduling.onHostMaintenance !== 'TERMINATE')
    refuse(
      'onHostMaintenance',
      scheduling.onHostMaintenance ?? 'MIGRATE',
      'Instances with TPUs do not support live migration',
    );
  if (model !== 'STANDARD' && scheduling.automaticRestart !== false)
    refuse(
      'automaticRestart',
      scheduling.automaticRestart ?? true,
      `An instance that is ${model} cannot be restarted automatically`,
    );
  const run_s = secondsOf(scheduling.maxRunDuration, 'scheduling.maxRunDuration');
  if (run_s !== null && (run_s < 30 || run_s > 120 * DAY_S))
    refuse('maxRunDuration', run_s, 'It is from 30 seconds to 120 days');
  if (run_s !== null && action === undefined)
    refuse('instanceTerminationAction', '', 'A maximum run duration needs a termination action');
  if (action !== undefined && action !== 'DELETE' && action !== 'STOP')
    refuse('instanceTerminationAction', action, 'It is DELETE or STOP');
  if (action !== undefined && run_s === null && model === 'STANDARD')
    refuse('instanceTerminationAction', action, 'It needs a Spot VM or a maximum run duration');
  const notice_s = secondsOf(scheduling.preemptionNoticeDuration, 'scheduling.preemptionNoticeDuration');
  if (notice_s !== null && model !== 'SPOT')
    refuse('preemptionNoticeDuration', notice_s, 'It is only for Spot VMs');
  const params = isObject(body.params) ? body.params : {};
  const wait_s = secondsOf(params.requestValidForDuration, 'params.requestValidForDuration');
  if (wait_s !== null && model !== 'FLEX_START')
    throw invalid('params.requestValidForDuration', wait_s, 'It is only for flex-start');
  if (model === 'FLEX_START') {
    const affinity = isObject(body.reservationAffinity)
      ? body.reservationAffinity.consumeReservationType
      : undefined;
    if (affinity !== 'NO_RESERVATION')
      throw invalid('reservationAffinity', affinity ?? '', 'A flex-start instance consumes no reservation');
    if (run_s === null || run_s < 600 || run_s > 7 * DAY_S)
      refuse('maxRunDuration', run_s ?? '', 'A flex-start instance runs from 10 minutes to 7 days');
    if (wait_s !== null && wait_s !== 0 && (wait_s < 90 || wait_s > 7200))
      throw invalid('params.requestValidForDuration', wait_s, 'It is from 90 seconds to 2 hours');
  }
  const ms = (seconds: number | null) => (seconds === null ? null : seconds * 1000);
  return {
    run_ms: ms(run_s),
    wait_ms: model === 'FLEX_START' ? ms(wait_s ?? 0) : null,
    notice_ms: ms(notice_s),
    deletes_itself: action === 'DELETE',
  };
}
