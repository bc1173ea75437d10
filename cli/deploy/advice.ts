/** Advice about failures of Terraform, by the messages of Google's APIs. */
import {adviceFor as adviceOfGoogle} from '../../shared/google/error-advice.ts';

/** Settings and state. The first matching row counts. */
const ADVICE: [pattern: RegExp, advice: string][] = [
  [
    /state lock/i,
    'another apply may run: wait for it, or release a lock that is left over with `terraform force-unlock`',
  ],
  [
    /organization policy|constraints\//i,
    'a policy of the organization forbids this: ask its administrator, or change the setting',
  ],
  [
    /project '?[\w/:.-]+'? (?:not found|does not exist|has been deleted)|USER_PROJECT_DENIED|CONSUMER_INVALID/i,
    'check `project` in the settings: it is the id of a project that your account can see',
  ],
  [
    /unknown (?:zone|region)|invalid.{0,40}(?:zone|region|location)|(?:zone|region|location).{0,80}(?:does not exist|not found|is not supported)/i,
    'check `region` and `zones` in the settings: `gcloud compute tpus locations list` prints the zones',
  ],
];

const QUOTA = /quota exceeded|exceeded.{0,40}quota|RESOURCE_EXHAUSTED/i;

/** Advice for the first failure of an output; undefined for an unknown failure. */
export function adviceFor(output: string): string | undefined {
  // Terraform breaks lines at the width of a terminal.
  const text = output.replace(/\s+/g, ' ');
  const [, advice] = ADVICE.find(([pattern]) => pattern.test(text)) ?? [];
  if (advice) return advice;
  if (QUOTA.test(text))
    return 'ask for more of this quota at https://console.cloud.google.com/iam-admin/quotas';
  return adviceOfGoogle(text);
}

/** Signs of a service agent that does not exist yet, or whose new role is not known everywhere yet. */
const EARLY = [
  /service account service-\d+@\S+ (?:does not exist|does not have)/i,
  /service agent.{0,80}(?:does not exist|not (?:yet )?(?:found|ready|created))/i,
  /permission denied while using the Eventarc/i,
  /may take (?:a few|several) minutes/i,
];

/** True if a repeat after a minute may succeed. */
export function isTooEarly(text: string): boolean {
  return EARLY.some(sign => sign.test(text));
}
