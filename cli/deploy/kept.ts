/** What a destroy keeps: the next deployment of the same name takes it into the state of Terraform. */
import {absentAsNull, type GoogleApi, type Json} from '../../client/google/api.ts';
import {isForbidden} from '../../shared/google/errors.ts';
import type {Change} from './plan.ts';

/** `id`: as `terraform import` names it. */
type Kept = {address: string; id: string};

type Look = (api: GoogleApi, project: string, values: Json) => Promise<string | undefined>;

const LOOKS: Record<string, Look> = {
  google_storage_bucket: async (api, _, {name}) =>
    (await found(api, `storage.googleapis.com/storage/v1/b/${name}`)) && String(name),
  google_firestore_database: async (api, project, {name}) => {
    const id = `projects/${project}/databases/${name}`;
    return (await found(api, `firestore.googleapis.com/v1/${id}`)) && id;
  },
  google_firestore_backup_schedule: async (api, project, {database}) => {
    const schedules = `projects/${project}/databases/${database}/backupSchedules`;
    const answer = await found(api, `firestore.googleapis.com/v1/${schedules}`);
    const daily = ((answer?.backupSchedules ?? []) as Json[]).find(each => each.dailyRecurrence);
    return daily && String(daily.name);
  },
  google_project_iam_custom_role: async (api, project, {role_id}) => {
    const id = `projects/${project}/roles/${role_id}`;
    const role = await found(api, `iam.googleapis.com/v1/${id}`);
    // Terraform restores a role that was deleted in the last 7 days.
    return role && role.deleted !== true ? id : undefined;
  },
};

/** The resources that a plan creates, and that an earlier deployment has left. */
export async function keptOf(api: GoogleApi, project: string, changes: readonly Change[]): Promise<Kept[]> {
  const kept: Kept[] = [];
  for (const {address, type, actions, values} of changes) {
    const look = actions.includes('create') && !actions.includes('delete') ? LOOKS[type] : undefined;
    const id = await look?.(api, project, values);
    if (id !== undefined) kept.push({address, id});
  }
  return kept;
}

/** Undefined for an absent resource, one of another project, and one of an API that is seconds old. */
async function found(api: GoogleApi, address: string): Promise<Json | undefined> {
  try {
    return (await absentAsNull(api.call('GET', address))) ?? undefined;
  } catch (error) {
    if (isForbidden(error)) return undefined;
    throw error;
  }
}
