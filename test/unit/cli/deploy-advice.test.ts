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
  [
    'a project that the account cannot see',
    'Error: Error when reading or editing Project Service : Request `List` returned error: The caller does not have permission',
    /check `project`/,
  ],
  ['an unknown location', "Error 400: Location 'us-east99' is not a valid location.", /check `region`/],
  [
    'a quota of processors',
    'Quota violated: CpuAllocPerProjectRegion requested: 20000 allowed: 10000',
    /more of this quota/,
  ],
  [
    'credentials without a quota project',
    'Your application is authenticating by using local Application Default Credentials. The firestore.googleapis.com API requires a quota project',
    /set-quota-project/,
  ],
  [
    'a database of an earlier deployment',
    'Error 409: Database already exists. Please use another database_id',
    /import it as terraform\/README\.md/,
  ],
  [
    'a deployer who may not act as an account',
    "Error 403: Permission 'iam.serviceaccounts.actAs' denied on service account gleaner-control@p.iam.gserviceaccount.com",
    /grant your own account roles\/iam\.serviceAccountUser/,
  ],
  ['a locked state', 'Error: Error acquiring the state lock', /force-unlock/],
];

describe('Advice about a failure of Terraform', () => {
  for (const [name, message, advice] of CASES)
    it(`Advice about a failure of Terraform says what to do about ${name}`, () =>
      assert.match(adviceFor(message) ?? 'no advice', advice));

  it('Advice about a failure of Terraform is silent about an unknown failure', () =>
    assert.equal(adviceFor('Error: something new'), undefined));

  for (const message of [
    'Error 400: Service account service-123456789012@gcp-sa-pubsub.iam.gserviceaccount.com does not exist.',
    "Error creating Notification: Error 403: The service account 'service-1@gs-project-accounts.iam.gserviceaccount.com' does not have permission to publish messages to the Cloud Pub/Sub topic",
    'Error 404: Cannot find metric(s) that match type = "logging.googleapis.com/user/gleaner-signals". If a metric was created recently, it could take up to 10 minutes to become available.',
    'Error creating Trigger: googleapi: Error 400: Invalid resource state for "": Permission denied while using the Eventarc Service Agent. If you recently started to use Eventarc, it may take a few minutes before all necessary permissions are propagated to the Service Agent.',
    'Could not build the function due to a missing permission on the build service account.',
    'Access to bucket gcf-v2-sources-123456789012-us-central1 denied. You must grant Storage Object Viewer permission',
    'Permission denied on secret: projects/1/secrets/gleaner-ticket-key/versions/1 for Revision service account gleaner-control@p.iam.gserviceaccount.com.',
    "Error 400: Role (projects/p/roles/gleaner_tpu) does not exist in the resource's hierarchy.",
    'Error 400: Service account gleaner-build@p.iam.gserviceaccount.com does not exist.',
    'Cloud Functions API has not been used in project 1 before or it is disabled. If you enabled this API recently, wait a few minutes for the action to propagate to our systems and retry.',
  ])
    it(`Advice about a failure of Terraform repeats after: ${message.slice(0, 90)}…`, () =>
      assert.equal(isTooEarly(message), true));

  for (const [name, message] of CASES)
    it(`Advice about a failure of Terraform does not repeat after ${name}`, () =>
      assert.equal(isTooEarly(message), false));
});
