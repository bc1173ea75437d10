import type {GoogleApi, Json} from '../../client/google/api.ts';
import type {Answers} from '../../client/json/index.ts';
import type {Objects, Store} from '../../shared/ports/ports.ts';
import type {Record} from '../deploy/records.ts';
import type {Deployed, Settings} from '../deploy/settings.ts';

/** Input of the checks: the deployment as it should be, and the clients that read the deployment as it is. */
export type Context = Deployed & {
  api: GoogleApi;
  store: Store;
  objects: Objects;
  is_google: boolean;
  folder?: string | undefined;
  project: string;
  bucket: string;
  settings: Settings;
  /** The last deployment; undefined without a record. */
  applied: Record | undefined;
  /** Records of every deployment, the oldest first. */
  records: () => Promise<Record[]>;
  now_ms: number;
};

export type Finding = Answers['doctor']['findings'][number];

/** A finding before it has the name of its check. */
export type Found = Omit<Finding, 'check'>;

export type Check = {
  name: string;
  /** Runs for real on a local cloud, too. */
  is_local?: boolean;
  check: (context: Context) => Promise<Found>;
};

export const ok = (evidence: string): Found => ({severity: 'ok', evidence, cure: null});
export const warning = (evidence: string, cure: string): Found => ({severity: 'warning', evidence, cure});
export const broken = (evidence: string, cure: string): Found => ({severity: 'error', evidence, cure});

type Binding = {role: string; members?: string[]};

/** Members of the roles of a policy, by `ROLE MEMBER`. */
export function grantsIn(policy: Json): Set<string> {
  const bindings = (policy.bindings ?? []) as Binding[];
  return new Set(bindings.flatMap(({role, members = []}) => members.map(member => `${role} ${member}`)));
}
