import {quotaIdsOf} from '../../shared/domain/fleet/accelerators.ts';
import {regionOf} from '../../shared/domain/names.ts';
import {acceleratorOf} from '../../shared/domain/records/providers.ts';
import {ApiError} from '../http/errors.ts';
import type {Tpu, TpuApi} from '../vm/tpus.ts';
import type {InstanceSpec} from './spec.ts';

/** Instance of Compute Engine with the TPUs of one host. */
export type Instance = Tpu<InstanceSpec>;

/**
 * Instances of Compute Engine, which adds no attributes to their metadata. An instance that is preempted, or reaches the end of its run
 * duration, stops; it is deleted if its termination action is DELETE.
 */
export const INSTANCES: TpuApi<InstanceSpec> = {
  ...{kind: 'instances', api: 'compute', place: 'zones', subject: 'The resource'},
  states: {
    ...{WAITING: 'PENDING', CREATING: 'PROVISIONING', RUNNING: 'RUNNING'},
    ...{STOPPING: 'STOPPING', STOPPED: 'TERMINATED', DELETING: 'STOPPING'},
  },
  vmsOf: ({id, name, zone, spec: {machine_type, email, metadata}}) => [
    {id, name, zone, machine_type, address: '127.0.0.1', email, attributes: metadata},
  ],
  rateLimit: `quota metric 'Queries' and limit 'Queries per minute' of service 'compute.googleapis.com'`,
  quotaError: (zone, {machine_type, wait_ms, scheduling}) => {
    const isSpot = wait_ms !== null || scheduling.provisioningModel === 'SPOT';
    const [quota] = quotaIdsOf(acceleratorOf(machine_type) ?? '', isSpot, 'compute-engine');
    const message = `Quota '${quota}' exceeded. Limit: 0.0 in region ${regionOf(zone)}.`;
    return new ApiError(403, message, {reason: 'quotaExceeded'});
  },
  failures: {
    deleted: ({name}) => ({code: 'RESOURCE_NOT_FOUND', message: `${name} was deleted`, status: 404}),
    gone: ({name}) => ({code: 'RESOURCE_NOT_FOUND', message: `${name} is gone`, status: 404}),
    internal: () => ({code: 'INTERNAL_ERROR', message: 'Internal error. Please try again', status: 500}),
    stockout: ({zone}, project) => ({
      code: 'ZONE_RESOURCE_POOL_EXHAUSTED',
      message: `The zone 'projects/${project}/zones/${zone}' does not have enough resources available to fulfill the request. Try a different zone, or try again later.`,
      status: 503,
    }),
    expired: ({name, zone}) => ({
      code: 'REQUEST_VALID_FOR_DURATION_EXPIRED',
      message: `${name} got no capacity in ${zone} before its request expired`,
      status: 503,
    }),
  },
};
