/** Translates an instance of Compute Engine into the port's `Tpu`, and a request into an instance. */
import {MAX_TIMEOUT_S} from '../domain/bounds.ts';
import {regionOf} from '../domain/names.ts';
import {diskTypeOf, imagePath, machineTypeOf} from '../domain/records/providers.ts';
import type {Tpu, TpuRequest} from '../ports/ports.ts';
import type {Instance, NewInstance} from './compute-client.d.ts';
import {type NodeSettings, SCOPE} from './tpu-resources.ts';

const WEEK_S = 604_800;
/**
 * Longest life of an instance, after which Compute Engine deletes it even if every function is down. The longest attempt of a job ends
 * earlier. A flex-start instance lives for a week at most.
 */
const LEASH_S = MAX_TIMEOUT_S + 86_400;
/** Time from the notice of a preemption to its signal to the machine. The agent needs a quarter of it. */
const NOTICE_S = 120;

const WAIT_S = {least: 90, most: 7200};

/** Throws for a type without a machine; `acceleratorProblem` refuses such pools. */
export function instanceFor(request: TpuRequest, settings: NodeSettings, now: number): NewInstance {
  const {name, zone, accelerator, labels, metadata, queue} = request;
  const machine = machineTypeOf(accelerator);
  if (!machine) throw new Error(`Compute Engine has no machine type for ${accelerator}`);
  const {service_account = 'default'} = settings;
  return {
    name,
    machineType: `zones/${zone}/machineTypes/${machine}`,
    labels,
    metadata: metadataOf({...metadata, 'agent-worker-number': '0', 'accelerator-type': accelerator}),
    disks: [bootDiskOf(request)],
    networkInterfaces: [interfaceOf(zone, settings.network)],
    serviceAccounts: [{email: service_account, scopes: [SCOPE]}],
    scheduling: schedulingOf(request),
    ...(queue
      ? {
          reservationAffinity: {consumeReservationType: 'NO_RESERVATION'},
          params: {requestValidForDuration: {seconds: waitOf(queue, now)}},
        }
      : {}),
  };
}

/** The Cloud TPU API adds the first two attributes by itself. */
function metadataOf(attributes: Record<string, string>): NewInstance['metadata'] {
  return {items: Object.entries(attributes).map(([key, value]) => ({key, value}))};
}

function bootDiskOf({zone, accelerator, runtime_version, disk_gb, labels}: TpuRequest) {
  return {
    boot: true,
    autoDelete: true,
    initializeParams: {
      sourceImage: imagePath(runtime_version),
      diskType: `zones/${zone}/diskTypes/${diskTypeOf(accelerator)}`,
      ...(disk_gb === null ? {} : {diskSizeGb: disk_gb}),
      labels,
    },
  };
}

function interfaceOf(zone: string, settings: NodeSettings['network']) {
  const {network, subnetwork, external_ips = false} = settings ?? {};
  const pathOf = (name: string, place: string) => (name.includes('/') ? name : `${place}/${name}`);
  return {
    // A subnetwork implies its network.
    ...(network || !subnetwork ? {network: pathOf(network ?? 'default', 'global/networks')} : {}),
    ...(subnetwork ? {subnetwork: pathOf(subnetwork, `regions/${regionOf(zone)}/subnetworks`)} : {}),
    ...(external_ips ? {accessConfigs: [{type: 'ONE_TO_ONE_NAT', name: 'External NAT'}]} : {}),
  };
}

/** Machines with TPUs cannot be moved. Compute Engine restarts none, because the next incarnation replaces a lost one. */
function schedulingOf({spot, queue}: TpuRequest) {
  return {
    provisioningModel: queue ? 'FLEX_START' : spot ? 'SPOT' : 'STANDARD',
    onHostMaintenance: 'TERMINATE',
    automaticRestart: false,
    instanceTerminationAction: 'DELETE',
    maxRunDuration: {seconds: queue ? WEEK_S : LEASH_S},
    ...(spot ? {preemptionNoticeDuration: {seconds: NOTICE_S}} : {}),
  };
}

function waitOf({valid_until_at}: NonNullable<TpuRequest['queue']>, now: number): number {
  const left_s = Math.ceil((Date.parse(valid_until_at) - now) / 1000);
  return Math.min(WAIT_S.most, Math.max(WAIT_S.least, left_s));
}

/** Standing of a flex-start instance in its queue, in the words of queued resources. */
const QUEUED: Readonly<Record<string, string>> = {
  PENDING: 'WAITING_FOR_RESOURCES',
  PROVISIONING: 'PROVISIONING',
  STAGING: 'PROVISIONING',
};

/** Compute Engine has no health and no symptoms. A flex-start instance is a request in a queue until it gets its machine. */
export function tpuOf(instance: Instance): Tpu {
  const {name, zone, status, creationTimestamp, scheduling} = instance;
  const labels = {...instance.labels};
  const state = status || 'UNDEFINED_STATUS';
  const waits = state === 'PENDING';
  return {
    name: name ?? '',
    zone: (zone ?? '').split('/').at(-1) ?? '',
    state: waits ? null : state,
    health: 'HEALTH_UNSPECIFIED',
    labels,
    symptoms: [],
    queued:
      waits || scheduling?.provisioningModel === 'FLEX_START'
        ? {state: QUEUED[state] ?? 'ACTIVE', initiator: 'USER', error: null, valid_until_at: null, labels}
        : null,
    created_at: new Date(creationTimestamp || 0).toISOString(),
  };
}
