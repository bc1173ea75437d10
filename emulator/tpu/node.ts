import {HOST_CHIPS, hostsOfType} from '../../shared/domain/fleet/accelerators.ts';
import {DEFAULT_ACCOUNT, type VmSpec} from '../vm/vm-spec.ts';
import type {NodeState} from './catalog.ts';
import type {NodeSpec} from './spec.ts';

/** TPU node: a slice of one or more hosts. */
export type TpuNode = {
  zone: string;
  name: string;
  /** An int64 as a string; each incarnation of a name has a new id. */
  id: string;
  state: NodeState;
  spec: NodeSpec;
  created_at: string;
  /** Name of the operation in progress. */
  operation: string | null;
  /** Time of the next transition: CREATING to READY, READY (after a notice) to PREEMPTED, DELETING to gone. */
  due_at: number | null;
};

/** Change of a node that its queued resource reacts to. */
export type NodeChange =
  | {kind: 'ready' | 'preempted' | 'gone'}
  | {kind: 'failed'; code: number; message: string};

/** VMs of a node, one for each host, with the metadata attributes that Cloud TPU adds. JAX has a device for each chip of a slice. */
export function vmsOf(node: TpuNode): VmSpec[] {
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

/** Addresses of the hosts of a node. The hosts of a slice have their own, so each slice can use the same ports. */
export function addressesOf({id, spec}: TpuNode): string[] {
  const count = hostsOfType(spec.acceleratorType);
  if (count === 1) return ['127.0.0.1'];
  return Array.from({length: count}, (_, host) => `${subnetOf(id)}.${host + 1}`);
}

/** First three bytes of the addresses of a slice: 127.1.0 to 127.254.255. */
export function subnetOf(id: string): string {
  const number = Number(BigInt(id) % (254n * 256n));
  return `127.${1 + Math.floor(number / 256)}.${number % 256}`;
}
