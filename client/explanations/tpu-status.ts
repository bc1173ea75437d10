/** Words for the state of a TPU, as tables show them. docs/operations.md explains each. */
import type {Worker} from '../../shared/domain/records/worker.ts';

export const TPU_STATUSES = [
  'STARTING',
  'READY',
  'WORKING',
  'DRAINING',
  'PREEMPTED',
  'MISSING',
  'DELETING',
  'GONE',
  'HELD',
] as const;
export type TpuStatus = (typeof TPU_STATUSES)[number];

export function tpuStatus(worker: Worker): TpuStatus {
  switch (worker.phase) {
    case 'creating':
    case 'booting':
      return 'STARTING';
    case 'idle':
      return 'READY';
    case 'working':
      return 'WORKING';
    case 'draining':
      return 'DRAINING';
    case 'deleting':
      return worker.held ? 'DELETING' : (lossOf(worker) ?? 'DELETING');
    case 'gone':
      return worker.held ? 'HELD' : 'GONE';
    default:
      return worker.phase satisfies never;
  }
}

const SILENT = /^it (vanished|has said nothing|is READY but said nothing)/;

/** How Google took the TPU away, where it did. */
function lossOf({provider_state, missing_since_at, last_death}: Worker): 'PREEMPTED' | 'MISSING' | undefined {
  if (provider_state === 'PREEMPTED' || last_death === 'it was preempted') return 'PREEMPTED';
  return missing_since_at !== null || SILENT.test(last_death ?? '') ? 'MISSING' : undefined;
}
