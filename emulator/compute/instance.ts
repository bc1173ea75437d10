import type {VmSpec} from '../vm/vm-spec.ts';
import type {InstanceSpec} from './spec.ts';

/** Statuses of an instance on a local cloud. */
export type InstanceStatus = 'PENDING' | 'PROVISIONING' | 'RUNNING' | 'STOPPING' | 'TERMINATED';

/** Instance of Compute Engine with the TPUs of one host. */
export type Instance = {
  zone: string;
  name: string;
  /** A uint64 as a string; each instance of a name has a new id. */
  id: string;
  status: InstanceStatus;
  spec: InstanceSpec;
  created_at: string;
  /** Time of the next change of status in milliseconds since 1970; null without one. */
  due_at: number | null;
  /** Time at which a flex-start instance that got no machine is gone. */
  waits_until: number | null;
  /** True while a delete is under way, false while Compute Engine stops the instance. */
  is_deleted: boolean;
};

/** VM of an instance. Compute Engine adds no attribute to its metadata. */
export function vmOf({id, name, zone, spec}: Omit<Instance, 'status'>): VmSpec {
  const {machine_type, email, metadata} = spec;
  return {id, name, zone, machine_type, address: '127.0.0.1', email, attributes: metadata};
}
