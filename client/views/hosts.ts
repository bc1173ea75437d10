/** Hosts of a TPU, each with its last report. The fields of a worker are the report of host 0. */
import type {z} from 'zod';
import {NO_HOST, type Worker} from '../../shared/domain/records/worker.ts';
import {FIRST_HOST, hostsOf} from '../../shared/domain/worker/hosts.ts';
import type {host} from '../json/tpus.ts';

/** `isKnown`: false before the first hello. */
export type HostView = z.infer<typeof host> & {isKnown: boolean};

export function viewHosts(worker: Worker): HostView[] {
  return hostsOf(worker).map(host => {
    const known = worker.hosts[host];
    const {hostname, address, phase, heartbeat_at} = known ?? NO_HOST;
    const report = host === FIRST_HOST ? worker : {phase: phase ?? 'booting', heartbeat_at};
    const {phase: now, heartbeat_at: at} = report;
    return {host, hostname, address, isKnown: known !== undefined, phase: now, heartbeat_at: at};
  });
}

/** `tpu-us-central1-a-0`, or `tpu-us-central1-a-0/1` of a TPU of several hosts. */
export function hostName({name, host_count}: Worker, host: number): string {
  return host_count === 1 ? name : `${name}/${host}`;
}

/** Code of a host: the newest version that is ready or failed there. A host but host 0 names no commit. */
export type HostCode = {
  worker: string;
  host: number;
  version: number;
  error: string | null;
} & Partial<NonNullable<Worker['source_report']>>;

export function viewCode(worker: Worker): HostCode[] {
  return hostsOf(worker).flatMap((host): HostCode[] => {
    const at = {worker: worker.name, host};
    const {source_report: report} = worker;
    if (host === FIRST_HOST) return report ? [{...at, ...report}] : [];
    const {source_version: version = null, source_error: error = null} = worker.hosts[host] ?? {};
    if (version === null) return [];
    return [{...at, version, status: error === null ? 'ready' : 'failed', error}];
  });
}
