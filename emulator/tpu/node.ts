import {HOST_CHIPS, hostsOfType} from '../../shared/domain/fleet/accelerators.ts';
import {regionOf} from '../../shared/domain/names.ts';
import {ApiError} from '../http/errors.ts';
import {subnetOf, type Tpu, type TpuApi} from '../vm/tpus.ts';
import {DEFAULT_ACCOUNT, type VmSpec} from '../vm/vm-spec.ts';
import type {NodeSpec} from './spec.ts';

/** TPU node: a slice of one or more hosts. */
export type TpuNode = Tpu<NodeSpec>;

/** Nodes of Cloud TPU. A preempted node stays listed until its deletion. */
export const NODES: TpuApi<NodeSpec> = {
  ...{kind: 'nodes', api: 'tpu', place: 'locations', subject: 'Resource'},
  states: {
    ...{WAITING: 'CREATING', CREATING: 'CREATING', RUNNING: 'READY'},
    ...{STOPPING: 'PREEMPTED', STOPPED: 'PREEMPTED', DELETING: 'DELETING'},
  },
  vmsOf,
  rateLimit: `quota metric 'Create node requests' and limit 'CreateNode requests per minute' of service 'tpu.googleapis.com'`,
  quotaError: (zone, {acceleratorType}) => {
    const metric = `TPU${acceleratorType.split('-')[0]?.toUpperCase()}PreemptiblePerProjectPerZoneForTPUAPI`;
    return new ApiError(429, `Quota '${metric}' exhausted. Limit 0 in region ${regionOf(zone)}`);
  },
  failures: {
    deleted: ({name}) => ({code: 1, message: `The node ${name} was deleted during its creation`}),
    gone: ({name}) => ({code: 13, message: `The node ${name} vanished`}),
    internal: () => ({code: 13, message: 'An internal error has occurred'}),
    stockout,
    expired: stockout,
  },
};

function stockout({id, zone}: TpuNode) {
  const message = `There is no more capacity in the zone "${zone}"; you can try in another zone where Cloud TPU Nodes are offered (see https://cloud.google.com/tpu/docs/regions) [EID: 0x${BigInt(id).toString(16)}]`;
  return {code: 8, message};
}

/** VMs of a node, one for each host, with the metadata attributes that Cloud TPU adds. JAX has one device for each chip of a slice. */
function vmsOf(node: TpuNode): VmSpec[] {
  const {id, name, zone, spec} = node;
  const {acceleratorType, metadata, serviceAccount} = spec;
  const addresses = addressesOf(node);
  const isSlice = addresses.length > 1;
  return addresses.map((address, host) => ({
    id: String(BigInt(id) + BigInt(host)),
    name: isSlice ? `${name}-w-${host}` : name,
    ...{zone, machine_type: acceleratorType, address},
    email: typeof serviceAccount?.email === 'string' ? serviceAccount.email : DEFAULT_ACCOUNT,
    attributes: {
      'agent-worker-number': String(host),
      'accelerator-type': acceleratorType,
      'instance-id': name,
      'worker-network-endpoints': addresses.map(each => `unknown:unknown:${each}`).join(','),
      ...metadata,
    },
    env: isSlice ? {XLA_FLAGS: `--xla_force_host_platform_device_count=${HOST_CHIPS}`} : {},
  }));
}

/** Addresses of the hosts of a node. Each slice has its own addresses, so all slices can use the same ports. */
export function addressesOf({id, spec}: Pick<TpuNode, 'id' | 'spec'>): string[] {
  const count = hostsOfType(spec.acceleratorType);
  if (count === 1) return ['127.0.0.1'];
  return Array.from({length: count}, (_, host) => `${subnetOf(id)}.${host + 1}`);
}
