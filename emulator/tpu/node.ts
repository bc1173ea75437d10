import type {VmSpec} from '../vm/vm-spec.ts';
import type {NodeState} from './catalog.ts';
import type {NodeSpec} from './spec.ts';

/** TPU node of one host. */
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

/** Account of a node that names none, as at Google. */
const DEFAULT_ACCOUNT = '1-compute@developer.gserviceaccount.com';

/** VM of a node, with the metadata attributes that Cloud TPU adds. */
export function vmOf({id, name, zone, spec}: TpuNode): VmSpec {
  const {acceleratorType, metadata, serviceAccount} = spec;
  return {
    ...{id, name, zone, machine_type: acceleratorType},
    email: typeof serviceAccount?.email === 'string' ? serviceAccount.email : DEFAULT_ACCOUNT,
    attributes: {
      'agent-worker-number': '0',
      'accelerator-type': acceleratorType,
      'instance-id': name,
      'worker-network-endpoints': 'unknown:unknown:127.0.0.1',
      ...metadata,
    },
  };
}
