import assert from 'node:assert/strict';
import {adviceFor, isTooEarly} from '../../../cli/deploy/advice.ts';

const CASES: [name: string, message: string, advice: RegExp][] = [
  [
    'missing credentials',
    'Error: storage.NewClient() failed: dialing: google: could not find default credentials.',
    /gcloud auth application-default login/,
  ],
  [
    'expired credentials',
    'Error: Request `List Project Services` returned error: oauth2: "invalid_grant" "reauth related error (invalid_rapt)"',
    /gcloud auth application-default login/,
  ],
  [
    'an API that is off',
    'Error 403: Cloud Resource Manager API has not been used in project 123 before or it is disabled. Enable it by visiting https://console.developers.google.com/apis/api/cloudresourcemanager.googleapis.com/overview?project=123',
    /gcloud services enable cloudresourcemanager\.googleapis\.com --project=123/,
  ],
  [
    'a project without billing',
    "Error 400: Billing account for project '123' is not found. Billing must be enabled for activation of service(s)",
    /open billing account/,
  ],
  [
    'a missing permission',
    "Error 403: Permission 'iam.serviceAccounts.create' denied on resource (or it may not exist).",
    /a role with iam\.serviceAccounts\.create/,
  ],
  [
    'a missing permission of Cloud Storage',
    'googleapi: Error 403: someone@example.com does not have storage.buckets.create access to the Google Cloud project.',
    /a role with storage\.buckets\.create/,
  ],
  [
    'a wrong project',
    "Error 403: Project 'projects/typo' not found or deleted., USER_PROJECT_DENIED",
    /check `project`/,
  ],
  [
    'a spent quota',
    "Error 429: Quota exceeded for quota metric 'Networks' and limit 'Networks per project'",
    /more of this quota/,
  ],
  [
    'a policy of the organization',
    'Error 412: Constraint constraints/compute.vmExternalIpAccess violated for project 123.',
    /policy of the organization/,
  ],
  [
    'an unknown region',
    "Error 400: Invalid value for field 'resource.region': 'us-centrall'. Unknown region., invalid",
    /gcloud compute tpus locations list/,
  ],
  ['a locked state', 'Error: Error acquiring the state lock', /force-unlock/],
];

describe('Advice about a failure of Terraform', () => {
  for (const [name, message, advice] of CASES)
    it(`says what to do about ${name}`, () => assert.match(adviceFor(message) ?? 'no advice', advice));

  it('is silent about an unknown failure', () => assert.equal(adviceFor('Error: something new'), undefined));

  for (const message of [
    'Error 400: Service account service-123456789012@gcp-sa-pubsub.iam.gserviceaccount.com does not exist.',
    'Error creating Notification config: googleapi: Error 403: The service account service-1@gs-project-accounts.iam.gserviceaccount.com does not have permission to publish messages',
    'Error 403: Permission denied on secret: revision service account may not have access yet; it may take several minutes',
  ])
    it(`repeats after: ${message.slice(0, 60)}…`, () => assert.equal(isTooEarly(message), true));

  for (const [name, message] of CASES)
    it(`does not repeat after ${name}`, () => assert.equal(isTooEarly(message), false));
});
