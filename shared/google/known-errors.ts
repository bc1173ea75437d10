/**
 * What the errors of Google and of Terraform mean, by their text, because the codes are too coarse. No other file reads the text of an error.
 * If Google changes a text, its error counts by its code, and a person reads it whole.
 */

/**
 * `early`: Google has not finished an earlier step, such as a role or an agent. `ours`: the state of our own resources. `lost`: the connection
 * broke or the service failed. `unknown`: neither the text nor the code says what it means.
 */
export type Kind =
  | ('early' | 'rate' | 'no-capacity' | 'preempted' | 'quota' | 'permission' | 'credentials' | 'policy')
  | ('bad-request' | 'ours' | 'lost' | 'unknown');

/** Rows that code asks for. */
export type Id = 'no-credentials' | 'no-bucket' | 'no-provider' | 'lost-transaction' | 'expired' | 'local';

/** `mend`: what it means and what mends it, for a person; it gets the groups of the text, empty where they match nothing. */
type Row = readonly [
  kind: Kind,
  text: RegExp,
  mend?: string | ((...groups: string[]) => string) | undefined,
  id?: Id,
];

export const SIGN_IN = 'sign in with `gcloud auth application-default login`';
const CHECK_PLACE =
  'check `region` and `zones` in the settings: `gcloud compute tpus locations list` prints the zones';
const ASK_QUOTA = 'ask for more of this quota at https://console.cloud.google.com/iam-admin/quotas';
const AGAIN = 'run `gleaner deploy` again in some minutes';

/** Prefixes of permissions, each with a role that has all of them. */
const ROLES: readonly [start: string, role: string][] = [
  ['tpu.', 'roles/tpu.admin'],
  ['pubsub.topics.publish', 'roles/pubsub.publisher'],
  ['datastore.entities.', 'roles/datastore.user'],
  ['cloudscheduler.', 'roles/cloudscheduler.admin'],
  ['storage.objects.', 'roles/storage.objectUser'],
];

/** What to do about a permission that is missing, such as tpu.nodes.create. */
function grant(...names: string[]): string {
  const permission = names.find(Boolean) ?? '';
  const [, role] = ROLES.find(([start]) => permission.startsWith(start)) ?? [];
  return `grant the calling account ${role ? `${role}, which has ` : 'a role with '}${permission}`;
}

/** Who can change a policy of an organization, and the command that shows it. */
export function policyMend(constraint: string): string {
  const shows = constraint
    ? `: \`gcloud org-policies describe ${constraint} --effective --project=PROJECT\` shows it`
    : '';
  return `a policy of the organization forbids this${shows}; ask its administrator (roles/orgpolicy.policyAdmin) to exempt the project, or change the setting`;
}

const actAs = (account: string) =>
  `grant the account that calls roles/iam.serviceAccountUser on ${account || "the workers' account"}`;

/** The first matching row counts, so specific texts come first. A comment names where users or pages of Google show the texts below it. */
// biome-ignore format: a row a line
const ROWS: readonly Row[] = [
  ['ours', /local cloud/, undefined, 'local'],
  // google-auth-library, Google's OAuth server, and the provider of Terraform
  ['credentials', /invalid_grant|invalid_rapt|Could not (?:load the|find) default credentials|could not refresh access token|token has been expired or revoked/i, SIGN_IN, 'no-credentials'],
  ['credentials', /invalid authentication credentials|missing required authentication credential/i, SIGN_IN],
  ['credentials', /insufficient authentication scopes/i, 'sign in again, with the scope https://www.googleapis.com/auth/cloud-platform'],
  ['credentials', /requires a quota project/i, 'run `gcloud auth application-default set-quota-project` with the id of the project'],
  // Terraform
  ['ours', /state lock/i, 'another apply may run: wait for it, or release a lock that is left over with `terraform force-unlock`'],
  ['lost', /could not connect to registry|Failed to query available provider packages/i, undefined, 'no-provider'],
  // billing: Service Usage, Cloud TPU, Cloud Storage
  ['permission', /free-trial billing|billing (?:to be|is|must be|account).*(?:enabled|disabled|closed|not found)|(?:absent|closed)\)? billing account|BILLING_DISABLED/i, 'link the project to an open billing account'],
  // skypilot#1716; marin PR#6198: the limits of calls are project-wide
  ['rate', /(?:requests?|queries) per (?:\d+ )?(?:second|minute|day)|PerMinute|rate[ _]?(?:limit|exceeded)|too many requests|quota exceeded: requests/i],
  // marin#87, skypilot#4579, magic-modules PR#7297; Compute Engine's ZONE_RESOURCE_POOL_EXHAUSTED
  ['no-capacity', /no more capacity|insufficient (?:\w+ )?capacity|not (?:have )?enough (?:resources|capacity)|instance is currently unavailable in|stock-?out|RESOURCE_POOL_EXHAUSTED/i, 'another zone may have some'],
  ['preempted', /while in state PREEMPTED/i, 'another zone may have some'],
  // Users of v5litepod-4 in us-central1-a and v6e-4; TRC users of a zone without a grant
  ['quota', /permission to submit requests (?:into this queue )?for accelerator type "?([\w-]+)/i, type => `this project may not have ${type} in this zone: ask for its quota there (those of spot and on demand are apart), or take another zone`],
  ['quota', /Permission denied on 'locations\/([\w-]+)/i, zone => `this project may not have TPUs in ${zone}: ask for its quota there (those of spot and on demand are apart), or take another zone`],
  ['quota', /Location (\S+) is not found or access is unauthorized/i, zone => `take ${zone} out of the pool's zones, or ask for TPU quota there; \`gcloud compute tpus locations list\` names zones`],
  // terraform-provider-google#24153
  ['bad-request', /target reservation must be specified/i, 'Gleaner asks for no reservation: take another zone, or spot nodes'],
  ['quota', /due to quota restrictions/i, 'a new billing account cannot build in every region: take another `region`, or ask for its quota of Cloud Build at https://console.cloud.google.com/iam-admin/quotas'],
  ['quota', /quota.*\blimit:? 0(?:[.,]0)*(?![.,]?\d)/i, 'the quota here is zero: ask for TPU quota, or use another zone or type'],
  ['quota', /quota(?! project).*(?:exceeded|exhausted|violated)|(?:exceeded|exhausted|insufficient).*quota(?! project)/i, ASK_QUOTA],
  // Cloud Resource Manager's page of constraints; terraform-example-foundation#1454; VPC Service Controls
  ['policy', /do not belong to a permitted customer/i, policyMend('iam.allowedPolicyMemberDomains')],
  ['policy', /constraints\/([\w.]*\w)/i, policyMend],
  ['policy', /organization'?s? policy|vpcServiceControls/i, policyMend('')],
  // IAM: a deleted role can be restored for 7 days, and its id is free after 37
  ['ours', /existing role with that role_id in a deleted state/i, 'a destroyed deployment had this name, and Google keeps the ids of its roles for 37 days: choose another `name`'],
  // firebase-tools#5244; Cloud Functions and Cloud Build, whose roles are seconds old
  ['early', /Unable to retrieve the repository metadata/i, AGAIN],
  ['early', /artifactregistry\.\S+ (?:permissions|denied)|uploadArtifacts\S* denied/i, AGAIN],
  ['early', /missing permission on the build service account|Access to bucket gcf-v2-sources-\S+ denied/i, AGAIN],
  // terraform-provider-google#16329, #16599: a database that is seconds old
  ['early', /cross-transaction contention|underlying data changed|too much contention/i, AGAIN],
  ['early', /Database ID '\S+' is not available.*retry in/i, AGAIN],
  // terraform-provider-google#4354, #14584, #25294: agents and roles of Google's services
  ['early', /service account '?service-\d+@\S+ (?:does not exist|does not have|is not found)/i, 'run `gleaner deploy` again: it makes this account'],
  ['early', /service account '?[\w.-]+@\S+ (?:does not exist|does not have|is not found)/i, AGAIN],
  ['early', /service agent.{0,80}(?:does not exist|not (?:yet )?(?:found|ready|created))/i, AGAIN],
  ['early', /Cannot find metric\(s\) that match/i, AGAIN],
  ['early', /Permission denied on secret/i, AGAIN],
  ['early', /Role \S+ does not exist in the resource's hierarchy/i, AGAIN],
  ['early', /API has not been used in project (\S+) before or it is disabled(?:.*?\/([a-z]+\.googleapis\.com))?|SERVICE_DISABLED/i, (project, service) => service ? `run \`gcloud services enable ${service} --project=${project}\`, and wait some minutes` : 'enable this API with `gcloud services enable`, and wait some minutes'],
  ['early', /may take (?:a few|several) minutes|wait a few minutes for|up to 10 minutes/i, AGAIN],
  // colabtools#1177: a new account and one that is forbidden have the same text
  ['early', /(?:serviceAccounts\.actAs|permission to act as service_account)(?:.*?([\w.-]+@[\w.-]+\.gserviceaccount\.com))?.*or it may not exist/i, actAs],
  ['permission', /(?:serviceAccounts\.actAs|permission to act as service_account)(?:.*?([\w.-]+@[\w.-]+\.gserviceaccount\.com))?/i, actAs],
  ['ours', /already (?:exists|own)/i, 'a resource of this name exists, and `gleaner deploy` takes over only those that its destroy keeps: import it with `terraform import`, as terraform/README.md shows, or choose another `name`'],
  // Cloud Resource Manager, Firestore, Cloud Storage
  ['permission', /reading or editing Project|project '?([\w/:.-]+\w)'? (?:not found|does not exist or is deleted|has been deleted)|USER_PROJECT_DENIED|CONSUMER_INVALID|resource project '?([\w:.-]*\w)|access to project '([^']+)'/i, (...names) => `check \`project\` in the settings: it is the id of a project that your account can see${names.some(Boolean) ? `; or grant the account a role in ${names.find(Boolean)}` : ''}`],
  ['bad-request', /the project (\S+) does not exist or it does not contain|The database (\S+) does not exist/i, 'check the name of the cloud, or deploy it: `gleaner deploy` makes the database'],
  ['ours', /bucket.{0,40}(?:doesn't|does not) exist/i, undefined, 'no-bucket'],
  // firebase-functions#1408, firestore-typesense-search#117, terraform-provider-google#17057
  ['bad-request', /does not exist in region '\S+'\. Did you mean region '(\S+?)'/i, location => `set \`eventarc_location\` to ${location} in the settings, and deploy again`],
  // Cloud TPU and Compute Engine
  ['bad-request', /accelerator (\S+) was not found in zone (\S+)/i, (_, zone) => `take a type of \`gcloud compute tpus accelerator-types list --zone=${zone}\`, or another zone`],
  ['bad-request', /Machine type .*?'([\w-]+)' does not exist in zone '([\w-]+)/i, (_, zone) => `take a type of \`gcloud compute machine-types list --zones=${zone}\`, or another zone`],
  ['bad-request', /runtime.?version.*not found/i, 'take a runtime version of `gcloud compute tpus tpu-vm versions list`'],
  ['bad-request', /unknown (?:zone|region)|not a valid location|invalid.{0,40}(?:zone|region|location)|(?:zone|region|location).{0,80}(?:does not exist|not found|is not supported)/i, CHECK_PLACE],
  // Cloud Run
  ['ours', /Container Healthcheck failed/i, 'a function does not start, and its log says why: open the address in the message; `gleaner deploy` then replaces it'],
  // Firestore
  ['lost', /transaction .*(?:invalid|closed|expired|no longer valid)/i, undefined, 'lost-transaction'],
  // A call, or a queued resource, that ran out of its time
  ['lost', /valid.?until|expired|deadline|timed? ?out/i, undefined, 'expired'],
  // sockets
  ['lost', /\b(?:ECONN(?:REFUSED|RESET|ABORTED)|E(?:HOST|NET)UNREACH|ENOTFOUND|EAI_AGAIN|ETIMEDOUT|EPIPE|ERR_STREAM_PREMATURE_CLOSE|socket hang up)\b/],
  // IAM, in the words of each service
  ['permission', /'(\w+(?:\.\w+){2,})' (?:permission|denied)|Permission ["']?(\w+(?:\.\w+){2,})|have (\w+(?:\.\w+){2,}) access/i, grant],
  ['permission', /caller does not have permission/i, 'grant the calling account the role that it lacks'],
];

export type Known = {kind: Kind; mend: string | undefined; id: Id | undefined};

/** The row of a text; undefined for a text that no row knows. */
export function knownError(text: string): Known | undefined {
  // Terraform breaks lines at the width of a terminal, and draws a box around them.
  const line = text.replace(/[│╷╵\s]+/g, ' ');
  for (const [kind, pattern, mend, id] of ROWS) {
    const match = pattern.exec(line);
    if (!match) continue;
    const groups = match.slice(1).map(group => group ?? '');
    return {kind, mend: typeof mend === 'function' ? mend(...groups) : mend, id};
  }
  return undefined;
}
