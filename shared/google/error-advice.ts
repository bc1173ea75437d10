/**
 * Advice for a person on an error of Google's, found by the text of its message because the codes are too coarse. The texts were reported by
 * users of these services. If Google changes a text, only its advice is lost.
 */

/** `advise` gets the groups of the pattern, empty where they match nothing. */
type Row = {pattern: RegExp; advise: (...groups: string[]) => string};

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
  {
    pattern: new RegExp(`(?:${NO_ACT_AS.source})(?:.*?([\\w.-]+@[\\w.-]+\\.gserviceaccount\\.com))?`, 'i'),
    advise: account =>
      `grant the functions' service account roles/iam.serviceAccountUser on ${account || "the workers' service account"}, which GLEANER_WORKER_SERVICE_ACCOUNT names`,
  },
  {
    pattern:
      /API has not been used in project (\S+) before or it is disabled(?:.*?\/([a-z]+\.googleapis\.com))?|SERVICE_DISABLED/i,
    advise: (project, service) =>
      service
        ? `run \`gcloud services enable ${service} --project=${project}\`, and wait some minutes`
        : 'enable this API with `gcloud services enable`, and wait some minutes',
  },
  {pattern: NO_CREDENTIALS, advise: () => SIGN_IN},
  {
    pattern: /invalid authentication credentials|missing required authentication credential/i,
    advise: () => SIGN_IN,
  },
  {
    pattern: /insufficient authentication scopes/i,
    advise: () => 'sign in again, with the scope https://www.googleapis.com/auth/cloud-platform',
  },
  {
    pattern:
      /free-trial billing|billing (?:to be|is|must be|account).*(?:enabled|disabled|closed|not found)|BILLING_DISABLED/i,
    advise: () => 'link the project to an open billing account',
  },
  {
    pattern:
      /project '?([\w:.-]*\w)'? not found|resource project '?([\w:.-]*\w)|access to project '([^']+)'/i,
    advise: (...names) =>
      `set GLEANER_PROJECT to a project that exists, or grant this account a role in ${names.find(Boolean)}`,
  },
  {
    pattern: /the project (\S+) does not exist or it does not contain|The database (\S+) does not exist/i,
    advise: () =>
      'correct GLEANER_PROJECT and GLEANER_STORE, or apply the Terraform, which makes the database',
  },
  {
    pattern: /Location (\S+) is not found or access is unauthorized/i,
    advise: zone =>
      `take ${zone} out of the pool's zones, or ask for TPU quota there; \`gcloud compute tpus locations list\` names zones`,
  },
  {
    pattern: /accelerator (\S+) was not found in zone (\S+)/i,
    advise: (_, zone) =>
      `set GLEANER_ACCELERATOR to a type of \`gcloud compute tpus accelerator-types list --zone=${zone}\``,
  },
  {
    pattern: /runtime.?version.*not found/i,
    advise: () => 'set GLEANER_RUNTIME_VERSION to one of `gcloud compute tpus tpu-vm versions list`',
  },
  {
    pattern: /quota.*\blimit:? 0(?:[.,]0)*(?![.,]?\d)/i,
    advise: () => 'the quota here is zero: ask for TPU quota, or use another zone or type',
  },
  {
    pattern: PERMISSION,
    advise: (...groups) => {
      const permission = groups.find(Boolean) ?? '';
      const [, role] = ROLES.find(([start]) => permission.startsWith(start)) ?? [];
      return `grant the calling account ${role ? `${role}, which has ` : 'a role with '}${permission}`;
    },
  },
];

export function adviceFor(message: string): string | undefined {
  for (const {pattern, advise} of ROWS) {
    const match = pattern.exec(message);
    if (match) return advise(...match.slice(1).map(group => group ?? ''));
  }
  return undefined;
}
