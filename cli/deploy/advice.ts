/** Advice about failures of Terraform, by the messages of Google's APIs. */
import {adviceFor as adviceOfGoogle} from '../../shared/google/error-advice.ts';

/** Settings, state and the person who deploys. The first matching row counts. */
const ADVICE: [pattern: RegExp, advice: string][] = [
  [
    /state lock/i,
    'another apply may run: wait for it, or release a lock that is left over with `terraform force-unlock`',
  ],
  [
    /service account '?service-\d+@\S+ (?:does not exist|is not found)/i,
    'run `gleaner deploy` again: it makes this account',
  ],
  [/quota project/i, 'run `gcloud auth application-default set-quota-project` with the id of the project'],
  [
    /actAs|permission to act as/i,
    'grant your own account roles/iam.serviceAccountUser on the account that the message names',
  ],
  [
    /already (?:exists|own)|Error 409/i,
    'a resource of an earlier deployment exists: import it as terraform/README.md#destroy shows, or choose another `name`',
  ],
  [
    /organization policy|constraints\//i,
    'a policy of the organization forbids this: ask its administrator, or change the setting',
  ],
  [
    /reading or editing Project|project '?[\w/:.-]+'? (?:not found|does not exist|has been deleted)|USER_PROJECT_DENIED|CONSUMER_INVALID/i,
    'check `project` in the settings: it is the id of a project that your account can see',
  ],
  [
    /unknown (?:zone|region)|not a valid location|invalid.{0,40}(?:zone|region|location)|(?:zone|region|location).{0,80}(?:does not exist|not found|is not supported)/i,
    'check `region` and `zones` in the settings: `gcloud compute tpus locations list` prints the zones',
  ],
  [
    /quota exceeded|quota violated|exceeded.{0,40}quota|RESOURCE_EXHAUSTED/i,
    'ask for more of this quota at https://console.cloud.google.com/iam-admin/quotas',
  ],
];

/** Advice for the first failure of an output; undefined for an unknown failure. */
export function adviceFor(output: string): string | undefined {
  // Terraform breaks lines at the width of a terminal.
  const text = output.replace(/\s+/g, ' ');
  const [, advice] = ADVICE.find(([pattern]) => pattern.test(text)) ?? [];
  return advice ?? adviceOfGoogle(text);
}

/** Signs of a step that Google has not finished yet: an agent, a role, a metric or an API that is minutes old. */
const EARLY = [
  /service account '?[\w.-]+@\S+ (?:does not exist|does not have|is not found)/i,
  /service agent.{0,80}(?:does not exist|not (?:yet )?(?:found|ready|created))/i,
  /Cannot find metric\(s\) that match/i,
  /missing permission on the build service account|Access to bucket gcf-v2-sources-\S+ denied/i,
  /Permission denied on secret/i,
  /Role \S+ does not exist in the resource's hierarchy/i,
  /may take (?:a few|several) minutes|wait a few minutes for (?:the action|it) to propagate|up to 10 minutes/i,
];

/** True if a repeat after some minutes may succeed. */
export function isTooEarly(output: string): boolean {
  const text = output.replace(/\s+/g, ' ');
  return EARLY.some(sign => sign.test(text));
}
