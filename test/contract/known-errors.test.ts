/** Messages that users of Google's services have reported, with other names: each reader of an error says the same of it. */
import assert from 'node:assert/strict';
import {StepFailed} from '../../cli/deploy/terraform.ts';
import type {Context} from '../../cli/doctor/context.ts';
import {diagnose} from '../../cli/doctor/doctor.ts';
import {GoogleError} from '../../client/google/api.ts';
import {nextStep, waitText} from '../../shared/domain/records/constraint.ts';
import {OPEN} from '../../shared/domain/records/limiter.ts';
import {afterRefusal, limiterConstraint} from '../../shared/domain/zone/limiter.ts';
import {isTransient, kindOf, tpuError, tpuFailure, withAdvice} from '../../shared/google/errors.ts';
import {type Kind, knownError} from '../../shared/google/known-errors.ts';

const error = (code: number | string, message = 'no'): Error => Object.assign(new Error(message), {code});

/** By kind: the code, the message, and the advice. */
const MESSAGES: Record<Kind, [code: number, message: string, advice: RegExp][]> = {
  early: [
    [
      ...([
        7,
        "Unable to retrieve the repository metadata for projects/p/locations/us-central1/repositories/gcf-artifacts. Ensure that the Cloud Functions service account has 'artifactregistry.repositories.list' and 'artifactregistry.repositories.get' permissions. You can add the permissions by granting the role \"roles/artifactregistry.reader\".",
      ] as const),
      /again in some minutes/,
    ],
    [
      ...([
        7,
        'denied: Permission "artifactregistry.repositories.uploadArtifacts" denied on resource "projects/p/locations/us-central1/repositories/gleaner" (or it may not exist)',
      ] as const),
      /again in some minutes/,
    ],
    [
      ...([
        7,
        "Permission 'iam.serviceaccounts.actAs' denied on service account gleaner-worker@p.iam.gserviceaccount.com (or it may not exist).",
      ] as const),
      /roles\/iam\.serviceAccountUser on gleaner-worker@p\.iam\.gserviceaccount\.com$/,
    ],
    [
      ...([
        3,
        'You do not have permission to act as service_account: 1-compute@developer.gserviceaccount.com. (or it may not exist).',
      ] as const),
      /roles\/iam\.serviceAccountUser on 1-compute@developer\.gserviceaccount\.com$/,
    ],
    [
      ...([
        10,
        'Error 409: Aborted due to cross-transaction contention. This occurs when multiple transactions attempt to access the same data, requiring Firestore to abort at least one in order to enforce serializability.',
      ] as const),
      /again in some minutes/,
    ],
    [10, 'Error 409: The underlying data changed', /again in some minutes/],
    [
      9,
      "Error 400: Database ID 'gleaner' is not available in project 'p'. Please retry in 151 seconds.",
      /again/,
    ],
    [
      ...([
        7,
        'Cloud TPU API has not been used in project 157914570064 before or it is disabled. Enable it by visiting https://console.developers.google.com/apis/api/tpu.googleapis.com/overview?project=157914570064 then retry. If you enabled this API recently, wait a few minutes for the action to propagate to our systems and retry.',
      ] as const),
      /gcloud services enable tpu\.googleapis\.com --project=157914570064/,
    ],
    [
      3,
      'Error 400: Service account service-1@gcp-sa-pubsub.iam.gserviceaccount.com does not exist.',
      /makes this account/,
    ],
    [
      ...([
        7,
        "Error 403: The service account 'service-1@gs-project-accounts.iam.gserviceaccount.com' does not have permission to publish messages to the Cloud Pub/Sub topic",
      ] as const),
      /makes this account/,
    ],
    [
      ...([
        5,
        'Error 404: Cannot find metric(s) that match type = "logging.googleapis.com/user/gleaner-signals". If a metric was created recently, it could take up to 10 minutes to become available.',
      ] as const),
      /again in some minutes/,
    ],
    [
      ...([
        3,
        'Error 400: Invalid resource state for "": Permission denied while using the Eventarc Service Agent. If you recently started to use Eventarc, it may take a few minutes before all necessary permissions are propagated to the Service Agent.',
      ] as const),
      /again in some minutes/,
    ],
    [3, 'Could not build the function due to a missing permission on the build service account.', /again/],
    [
      7,
      'Access to bucket gcf-v2-sources-1-us-central1 denied. You must grant Storage Object Viewer permission',
      /again/,
    ],
    [
      ...([
        7,
        'Permission denied on secret: projects/1/secrets/gleaner-ticket-key/versions/1 for Revision service account gleaner-control@p.iam.gserviceaccount.com.',
      ] as const),
      /again in some minutes/,
    ],
    [
      3,
      "Error 400: Role (projects/p/roles/gleaner_tpu) does not exist in the resource's hierarchy.",
      /again/,
    ],
    [3, 'Error 400: Service account gleaner-build@p.iam.gserviceaccount.com does not exist.', /again/],
  ],
  rate: [
    [
      8,
      "Quota exceeded for quota metric 'TPU API requests' and limit 'Requests per 100 seconds' of service 'tpu.googleapis.com'",
      /try again/,
    ],
    [
      8,
      "Quota exceeded for quota metric 'Create node requests' and limit 'CreateNode requests per minute' of service 'tpu.googleapis.com' for consumer 'project_number:1'.",
      /whole project: try again in a minute/,
    ],
    [403, 'RATE_LIMIT_EXCEEDED', /try again/],
    [7, 'User Rate Limit Exceeded', /try again/],
    [429, 'Too Many Requests', /try again/],
    [4, 'Total timeout exceeded 60000 milliseconds: Quota exceeded: requests', /try again/],
    [
      429,
      'Operation rate exceeded for resource p/zones/z/instances/i. Too frequent operations from the source resource. (RESOURCE_OPERATION_RATE_EXCEEDED)',
      /try again/,
    ],
  ],
  'no-capacity': [
    [
      8,
      'There is no more capacity in the zone "europe-west4-a"; you can try in another zone where Cloud TPU Nodes are offered [EID: 0x1d2f]',
      /another zone may/,
    ],
    [
      8,
      'Insufficient reserved capacity. Contact customer support to increase your reservation',
      /another zone may/,
    ],
    [8, 'Resource exhausted.', /another zone may/],
    [
      14,
      "The zone 'projects/p/zones/us-central1-a' does not have enough resources available to fulfill the request. Try a different zone, or try again later.",
      /another zone may/,
    ],
    [
      503,
      'A ct5lp-hightpu-1t VM instance is currently unavailable in the us-west4-a zone.',
      /another zone may/,
    ],
  ],
  preempted: [[3, 'update is not supported while in state PREEMPTED', /another zone may/]],
  quota: [
    [
      7,
      'User does not have permission to submit requests for accelerator type v5litepod-4 in location us-central1-a',
      /may not have v5litepod-4 in this zone: ask for its quota/,
    ],
    [
      7,
      'User does not have permission to submit requests into this queue for accelerator type v6e-4',
      /may not have v6e-4 in this zone/,
    ],
    [
      7,
      "Permission denied on 'locations/us-central2-b' (or it may not exist).",
      /TPUs in us-central2-b: ask for its quota/,
    ],
    [
      7,
      'Location europe-west1-b is not found or access is unauthorized.',
      /take europe-west1-b out .* TPU quota/,
    ],
    [
      8,
      "RESOURCE_EXHAUSTED: Quota limit 'TPUV2sPodPerProjectPerRegionForTPUAPI' has been exceeded. Limit: 0,0",
      /quota here is zero/,
    ],
    [403, "Quota 'TPUS_PER_TPU_FAMILY' exceeded. Limit: 0.0 in region us-east5.", /quota here is zero/],
    [9, "Quota limit 'X' has been exceeded. Limit: 0.5 in zone us-west4-a.", /ask for more of this quota/],
    [
      8,
      "Quota 'TPUV4sPreemptiblePodPerProjectPerRegionForTPUAPI' exhausted. Limit 20800 in region us-central2",
      /ask for more of this quota/,
    ],
    [
      8,
      "Error 429: Quota exceeded for quota metric 'Networks' and limit 'Networks per project'",
      /ask for more of this quota/,
    ],
    [
      7,
      "Error 403: Quota 'NETWORKS' exceeded.  Limit: 5.0 globally., quotaExceeded",
      /ask for more of this quota/,
    ],
    [
      9,
      'Quota violated: CpuAllocPerProjectRegion requested: 20000 allowed: 10000',
      /ask for more of this quota/,
    ],
    [9, 'due to quota restrictions, cannot run builds in this region', /another `region`/],
  ],
  permission: [
    [
      7,
      "Permission 'tpu.nodes.create' denied on 'projects/p/locations/us-east5-b'",
      /roles\/tpu\.admin, which has tpu\.nodes\.create$/,
    ],
    [
      403,
      "Required 'compute.instances.list' permission for 'projects/p'",
      /a role with compute\.instances\.list$/,
    ],
    [
      403,
      "a@p.iam.gserviceaccount.com does not have storage.objects.get access to the Google Cloud Storage object. Permission 'storage.objects.get' denied on resource (or it may not exist).",
      /roles\/storage\.objectUser, which has storage\.objects\.get$/,
    ],
    [
      7,
      "Error 403: Permission 'iam.serviceaccounts.actAs' denied on service account gleaner-control@p.iam.gserviceaccount.com",
      /roles\/iam\.serviceAccountUser on gleaner-control@/,
    ],
    [7, 'The caller does not have permission', /the role that it lacks$/],
    [
      403,
      'cannot create a TPU Node on a project linked to a free-trial billing account',
      /open billing account/,
    ],
    [
      400,
      "Error 400: Billing account for project '123' is not found. Billing must be enabled for activation of service(s)",
      /open billing account/,
    ],
  ],
  credentials: [
    [
      2,
      'Getting metadata from plugin failed with error: {"error":"invalid_grant","error_subtype":"invalid_rapt"}',
      /application-default login/,
    ],
    [
      2,
      'Could not load the default credentials. Browse to https://cloud.google.com/docs/authentication/getting-started for more information.',
      /application-default login/,
    ],
    [
      2,
      'storage.NewClient() failed: dialing: google: could not find default credentials.',
      /application-default login/,
    ],
    [
      16,
      'Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other valid authentication credential.',
      /application-default login/,
    ],
    [403, 'Request had insufficient authentication scopes.', /the scope https:/],
    [7, 'The tpu.googleapis.com API requires a quota project.', /set-quota-project/],
  ],
  policy: [
    [
      9,
      'Constraint constraints/compute.vmExternalIpAccess violated for project 123. Add instance projects/p/zones/z/instances/i to the constraint to use external IP with it.',
      /describe compute\.vmExternalIpAccess .*administrator/,
    ],
    [
      412,
      'Constraint constraints/compute.requireShieldedVm violated for project p. Secure Boot is not enabled in the shielded_instance_config field.',
      /describe compute\.requireShieldedVm/,
    ],
    [
      9,
      'One or more users named in the policy do not belong to a permitted customer, perhaps due to an organization policy.',
      /describe iam\.allowedPolicyMemberDomains/,
    ],
    [
      7,
      "Request is prohibited by organization's policy. vpcServiceControlsUniqueIdentifier: abc",
      /administrator/,
    ],
  ],
  'bad-request': [
    [
      3,
      'Cloud TPU received a bad request. the accelerator v4-128 was not found in zone us-central2-b [EID: 0x945ef875d10e8e13]',
      /accelerator-types list --zone=us-central2-b/,
    ],
    [
      400,
      "Invalid value for field 'resource.machineType': 'https://www.googleapis.com/compute/v1/projects/p/zones/us-east1-d/machineTypes/ct6e-standard-4t'. Machine type with name 'ct6e-standard-4t' does not exist in zone 'us-east1-d'.",
      /machine-types list --zones=us-east1-d/,
    ],
    [5, 'Runtime version not found', /tpu-vm versions list/],
    [
      9,
      'A target reservation must be specified when the host project has at least one reservation',
      /no reservation/,
    ],
    [3, "Error 400: Location 'us-south1' is not a valid location.", /check `region`/],
    [
      3,
      "Error 400: Invalid value for field 'resource.region': 'us-centrall'. Unknown region., invalid",
      /check `region` and `zones`/,
    ],
    [
      3,
      "Validation failed for trigger projects/p/locations/us-central1/triggers/t: The request was invalid: generic::invalid_argument: Database '(default)' does not exist in region 'us-central1'. Did you mean region 'nam5'?",
      /`eventarc_location` to nam5/,
    ],
    [403, "Project 'data-mining' not found or permission denied.", /check `project` .* in data-mining$/],
    [7, 'Permission denied on resource project data-mining.', /check `project` .* in data-mining$/],
    [403, "Read access to project 'annotator-1286' was denied", /in annotator-1286$/],
    [7, "Error 403: Project 'projects/typo' not found or deleted., USER_PROJECT_DENIED", /check `project`/],
    [
      5,
      'The project xyz123 does not exist or it does not contain an active Cloud Datastore or Cloud Firestore database.',
      /`gleaner deploy` makes the database/,
    ],
    [3, 'Cloud TPU received a bad request. Invalid accelerator type', /correct the pool$/],
    [9, 'The node is in state DELETING', /correct the pool$/],
  ],
  ours: [
    [6, 'Error 409: Database already exists. Please use another database_id', /another `name`/],
    [
      6,
      'Error 409: Your previous request to create the named bucket succeeded and you already own it.',
      /another `name`/,
    ],
    [
      3,
      "Error 400: You can't create a role with role_id (gleaner_tpu) where there is an existing role with that role_id in a deleted state.",
      /37 days: choose another `name`/,
    ],
    [10, 'Error acquiring the state lock', /force-unlock/],
    [3, 'Container Healthcheck failed. Revision is not ready and cannot serve traffic.', /its log says why/],
  ],
  lost: [
    [14, 'Internal error. Please try again', /try again$/],
    [13, 'Internal error', /try again$/],
    [4, 'Deadline exceeded', /try again$/],
    [10, 'The operation was aborted', /try again$/],
    [2, 'request to http://127.0.0.1:9/ failed, reason: connect ECONNREFUSED 127.0.0.1:9', /try again$/],
  ],
  unknown: [[7, 'Nobody has seen this refusal before', /not known/]],
};

/** Seconds until the next request of a zone that has given no node, and the command of `why`. */
const WAITS: Record<Exclude<Kind, 'rate'>, [wait_s: number, step: RegExp]> = {
  early: [120, /pool resume tpu/],
  'no-capacity': [60, /add zones/],
  preempted: [60, /add zones/],
  quota: [60, /ask Google for the quota/],
  permission: [120, /grant the role .* pool resume tpu/],
  credentials: [120, /pool resume tpu/],
  policy: [3600, /administrator .* pool resume tpu/],
  'bad-request': [3600, /gleaner doctor/],
  ours: [3600, /gleaner doctor/],
  lost: [60, /add zones/],
  unknown: [120, /mend what the answer names/],
};

const ROWS = Object.entries(MESSAGES).flatMap(([kind, rows]) =>
  rows.map(([code, message, advice]) => ({kind: kind as Kind, code, message, advice})),
);

describe('What the errors of Google mean', () => {
  for (const {kind, code, message, advice} of ROWS) {
    const about = `${kind}: ${message.slice(0, 70)}`;
    const given = error(code, message);
    const said = message.replace(/\s+/g, ' ').replace(/\.$/, '');

    it(`to the tick and to why: ${about}`, () => {
      assert.equal(kindOf(given), kind);
      const failed = tpuError('create tpu-a', 'us-east5-b', given);
      assert.ok(failed.message.startsWith(`Failed to create tpu-a in us-east5-b: ${said}; `), failed.message);
      assert.match(failed.message, advice);
      // No zone waits for it: all creates of the project do.
      if (kind === 'rate' || failed.kind === 'rate') return assert.equal(failed.kind, kind);
      const refused = {kind: failed.kind, reason: failed.message, isLate: false, asked_at: null};
      const limiter = afterRefusal(OPEN, refused, {retry_s: 60, longest_retry_s: 300}, 0);
      const [wait_s, step] = WAITS[kind];
      assert.equal(Date.parse(limiter.next_at ?? ''), wait_s * 1000);
      const waits = limiterConstraint('us-east5-b', limiter, '') ?? assert.fail();
      assert.ok(waitText(waits).includes(failed.message));
      assert.match(nextStep(waits, {work: 'my-run', pool: 'tpu'}) ?? '', step);
    });

    it(`to a deployment: ${about}`, () => {
      const failed = new StepFailed('apply', `\n│ Error: ${message}\n│ \n│   with google_x.y,\n╵\n`);
      assert.match(failed.message, /^Failed to apply: /);
      // What only a text says, because Terraform gives no code.
      if (knownError(message)?.mend === undefined) return;
      assert.equal(failed.kind, kind);
      assert.match(failed.message, advice);
    });
  }

  it('is the same to every check of doctor', async () => {
    const [, message] = MESSAGES.quota[0] ?? assert.fail();
    const refuse = async () => {
      throw new GoogleError(403, 'GET x', message);
    };
    const api = {endpoint: undefined, token: undefined, call: refuse, account: async () => 'me'};
    const store = {query: async () => [], get: async () => undefined};
    const context = {
      ...{api, store, is_google: true, project: 'p', name: 'gleaner', region: 'us-central1', settings: {}},
      ...{zones: ['us-central1-a'], accelerator: 'v5litepod-4', objects: {list: refuse, create: refuse}},
    };
    const findings = await diagnose(context as unknown as Context);
    const apis = findings.find(({check}) => check === 'APIs');
    assert.match(apis?.evidence ?? '', /permission to submit requests .*may not have v5litepod-4/);
  });

  it('shows a failure of Terraform that nobody knows whole, and calls it not known', () => {
    const {message} = new StepFailed('apply', '\n│ Error: something new\n│ \n│   happened here\n');
    assert.equal(message, 'Failed to apply: something new happened here; this error is not known here');
  });

  it('ends a deployment at the first error that a repeat does not mend, beside others that it does', () => {
    const [[, early] = assert.fail()] = MESSAGES.early;
    const [[, quota] = assert.fail()] = MESSAGES.quota;
    const failed = new StepFailed('apply', `Error: ${early}\n\nError: ${quota}\n`);
    assert.equal(failed.kind, 'quota');
    assert.match(failed.message, /v5litepod-4/);
  });

  it('a call without valid credentials is not repeated', () => {
    assert.ok(!isTransient(new Error('Could not load the default credentials.')));
    assert.ok(!isTransient(error(2, 'Getting metadata from plugin failed with error: invalid_grant')));
    assert.ok(isTransient(error(2, 'Getting metadata from plugin failed with error: ECONNRESET')));
  });

  it('a reason without a known cause stays as it is, on one line', () => {
    assert.equal(withAdvice(error(13, 'Internal\n  error')), 'Internal error');
    assert.equal(withAdvice(error(13, 'Internal error'), 'try again'), 'Internal error; try again');
    assert.equal(tpuFailure(error(13, 'Internal error')), 'transient');
  });
});
