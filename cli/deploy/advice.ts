/** Advice about failures of Terraform, by the messages of Google's APIs. */

type Advice = [pattern: RegExp, advice: (match: RegExpExecArray) => string];

const ADVICE: Advice[] = [
  [
    /could not find default credentials|invalid_grant|reauth|credentials.*expired|Unable to (find|load) .*credentials/i,
    () => 'run `gcloud auth application-default login`',
  ],
  [
    /bucket doesn't exist|(?:storage: )?bucket .{0,80}does not exist|Failed to get existing workspaces: .*404/i,
    () => 'make the bucket of the state first',
  ],
  [
    /API has not been used in project|SERVICE_DISABLED|API .{0,80}is disabled/i,
    ({input}) => {
      const [api = 'API'] = /[a-z]+\.googleapis\.com(?=\W)/.exec(input) ?? [];
      return `run \`gcloud services enable ${api}\`, wait a minute, and repeat`;
    },
  ],
  [
    /billing account|billing (?:must be|is not|is disabled|has not been) ?enabled|BILLING_DISABLED/i,
    () => 'link a billing account to the project with `gcloud billing projects link`',
  ],
  [
    /Permission '?([a-z]+\.[\w.]+)'? denied|(?:does not have|lacks|missing) ([a-z]+\.[\w.]+) (?:permission|access)|Required '([a-z]+\.[\w.]+)' permission/i,
    ([, ...named]) =>
      `your account lacks ${named.find(Boolean)}: an owner of the project must grant a role with it`,
  ],
  [
    /project.*(?:not found|does not exist|has been deleted)|Unknown project|USER_PROJECT_DENIED|CONSUMER_INVALID/i,
    () => 'check `project` in the settings: it is the id of a project that your account can see',
  ],
  [
    /quota|RESOURCE_EXHAUSTED/i,
    () => 'ask for more of the quota that the message names at console.cloud.google.com/iam-admin/quotas',
  ],
  [
    /organization policy|constraints\/([\w.]+)/i,
    () => 'a policy of the organization forbids this: ask its administrator, or change the setting',
  ],
  [
    /(?:zone|region|location).{0,80}(?:does not exist|not found|is not (?:valid|supported)|invalid)|invalid.{0,40}(?:zone|region|location)/i,
    () => 'check `region` and `zones` in the settings: `gcloud compute tpus locations list` prints the zones',
  ],
  [
    /Error acquiring the state lock/i,
    () =>
      'another apply may run now: wait for it, or release a lock that is left over with `terraform force-unlock`',
  ],
];

/** Advice for the first failure that the text has; undefined for an unknown failure. */
export function adviceFor(text: string): string | undefined {
  for (const [pattern, advice] of ADVICE) {
    const match = pattern.exec(text);
    if (match) return advice(match);
  }
  return undefined;
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
