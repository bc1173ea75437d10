/**
 * Advice for a person on an error of Google's, found by the text of its message because the codes are too coarse. The texts were reported by
 * users of these services. If Google changes a text, only its advice is lost.
 */

/** The advice gets the groups of the pattern, empty where they match nothing. */
type Row = readonly [pattern: RegExp, advise: (...groups: string[]) => string];

/** Prefixes of permissions, each with a role that has all of them. */
const ROLES: readonly [start: string, role: string][] = [
  ['tpu.', 'roles/tpu.admin'],
  ['pubsub.topics.publish', 'roles/pubsub.publisher'],
  ['datastore.entities.', 'roles/datastore.user'],
  ['cloudscheduler.', 'roles/cloudscheduler.admin'],
  ['storage.objects.', 'roles/storage.objectUser'],
];

/** The calling account may not attach the workers' account to nodes. */
export const NO_ACT_AS = /iam\.serviceAccounts\.actAs|permission to act as service_account/i;
export const NO_CREDENTIALS =
  /invalid_grant|invalid_rapt|Could not (load the|find) default credentials|could not refresh access token|token has been expired or revoked/i;

const PERMISSION =
  /'(\w+(?:\.\w+){2,})' (?:permission|denied)|Permission ["']?(\w+(?:\.\w+){2,})|have (\w+(?:\.\w+){2,}) access/i;

export const SIGN_IN = 'sign in with `gcloud auth application-default login`';

/** The first matching row counts, so specific texts come first. */
const ROWS: readonly Row[] = [
  [
    new RegExp(`(?:${NO_ACT_AS.source})(?:.*?([\\w.-]+@[\\w.-]+\\.gserviceaccount\\.com))?`, 'i'),
    account =>
      `grant the functions' service account roles/iam.serviceAccountUser on ${account || "the workers' service account"}, which GLEANER_WORKER_SERVICE_ACCOUNT names`,
  ],
  [
    /API has not been used in project (\S+) before or it is disabled(?:.*?\/([a-z]+\.googleapis\.com))?|SERVICE_DISABLED/i,
    (project, service) =>
      service
        ? `run \`gcloud services enable ${service} --project=${project}\`, and wait some minutes`
        : 'enable this API with `gcloud services enable`, and wait some minutes',
  ],
  [NO_CREDENTIALS, () => SIGN_IN],
  [/invalid authentication credentials|missing required authentication credential/i, () => SIGN_IN],
  [
    /insufficient authentication scopes/i,
    () => 'sign in again, with the scope https://www.googleapis.com/auth/cloud-platform',
  ],
  [
    /free-trial billing|billing (?:to be|is|must be|account).*(?:enabled|disabled|closed|not found)|BILLING_DISABLED/i,
    () => 'link the project to an open billing account',
  ],
  [
    /project '?([\w:.-]*\w)'? not found|resource project '?([\w:.-]*\w)|access to project '([^']+)'/i,
    (...names) =>
      `set GLEANER_PROJECT to a project that exists, or grant this account a role in ${names.find(Boolean)}`,
  ],
  [
    /the project (\S+) does not exist or it does not contain|The database (\S+) does not exist/i,
    () => 'correct GLEANER_PROJECT and GLEANER_STORE, or apply the Terraform, which makes the database',
  ],
  [
    /Location (\S+) is not found or access is unauthorized/i,
    zone =>
      `take ${zone} out of the pool's zones, or ask for TPU quota there; \`gcloud compute tpus locations list\` names zones`,
  ],
  [
    /accelerator (\S+) was not found in zone (\S+)/i,
    (_, zone) =>
      `set GLEANER_ACCELERATOR to a type of \`gcloud compute tpus accelerator-types list --zone=${zone}\``,
  ],
  [
    /runtime.?version.*not found/i,
    () => 'set GLEANER_RUNTIME_VERSION to one of `gcloud compute tpus tpu-vm versions list`',
  ],
  [
    /quota.*\blimit:? 0(?:[.,]0)*(?![.,]?\d)/i,
    () => 'the quota here is zero: ask for TPU quota, or use another zone or type',
  ],
  [
    PERMISSION,
    (...groups) => {
      const permission = groups.find(Boolean) ?? '';
      const [, role] = ROLES.find(([start]) => permission.startsWith(start)) ?? [];
      return `grant the calling account ${role ? `${role}, which has ` : 'a role with '}${permission}`;
    },
  ],
];

export function adviceFor(message: string): string | undefined {
  for (const [pattern, advise] of ROWS) {
    const match = pattern.exec(message);
    if (match) return advise(...match.slice(1).map(group => group ?? ''));
  }
  return undefined;
}
