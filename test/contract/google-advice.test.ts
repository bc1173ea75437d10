import assert from 'node:assert/strict';
import {isTransient, tpuError, tpuFailure, withAdvice} from '../../shared/google/errors.ts';

const error = (code: number | string, message = 'no'): Error => Object.assign(new Error(message), {code});

/** Messages that users of the services have reported, with other names, and the advice on them. */
const ADVICE: {code?: number; message: string; advice: RegExp; kind?: string}[] = [
  {
    code: 7,
    message:
      "Permission 'iam.serviceaccounts.actAs' denied on service account gleaner-worker@p.iam.gserviceaccount.com (or it may not exist).",
    advice: /roles\/iam\.serviceAccountUser on gleaner-worker@p\.iam\.gserviceaccount\.com,/,
  },
  {
    code: 3,
    message:
      'You do not have permission to act as service_account: 1-compute@developer.gserviceaccount.com. (or it may not exist).',
    advice: /roles\/iam\.serviceAccountUser on 1-compute@developer\.gserviceaccount\.com,/,
  },
  {
    code: 7,
    message:
      'Cloud TPU API has not been used in project 157914570064 before or it is disabled. Enable it by visiting https://console.developers.google.com/apis/api/tpu.googleapis.com/overview?project=157914570064 then retry. If you enabled this API recently, wait a few minutes for the action to propagate to our systems and retry.',
    advice: /gcloud services enable tpu\.googleapis\.com --project=157914570064/,
  },
  {
    code: 2,
    message:
      'Getting metadata from plugin failed with error: {"error":"invalid_grant","error_description":"reauth related error (invalid_rapt)","error_subtype":"invalid_rapt"}',
    advice: /gcloud auth application-default login/,
  },
  {
    message:
      'Could not load the default credentials. Browse to https://cloud.google.com/docs/authentication/getting-started for more information.',
    advice: /gcloud auth application-default login/,
  },
  {
    code: 16,
    message:
      'Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other valid authentication credential.',
    advice: /gcloud auth application-default login/,
  },
  {code: 403, message: 'Request had insufficient authentication scopes.', advice: /the scope https:/},
  {
    code: 403,
    message: 'cannot create a TPU Node on a project linked to a free-trial billing account',
    advice: /open billing account/,
  },
  {
    code: 403,
    message: "Project 'data-mining' not found or permission denied.",
    advice: /GLEANER_PROJECT .* in data-mining$/,
  },
  {
    code: 7,
    message: 'Permission denied on resource project data-mining.',
    advice: /GLEANER_PROJECT .* in data-mining$/,
  },
  {
    code: 403,
    message: "Read access to project 'annotator-1286' was denied",
    advice: /GLEANER_PROJECT .* in annotator-1286$/,
  },
  {
    code: 5,
    message:
      'The project xyz123 does not exist or it does not contain an active Cloud Datastore or Cloud Firestore database. Please visit http://console.cloud.google.com to create a project.',
    advice: /GLEANER_STORE.*Terraform/,
    kind: 'bad-request',
  },
  {
    code: 7,
    message: 'Location europe-west1-b is not found or access is unauthorized.',
    advice: /take europe-west1-b out .* TPU quota/,
  },
  {
    code: 3,
    message:
      'Cloud TPU received a bad request. the accelerator v4-128 was not found in zone us-central2-b [EID: 0x945ef875d10e8e13]',
    advice: /GLEANER_ACCELERATOR.*--zone=us-central2-b/,
    kind: 'bad-request',
  },
  {code: 5, message: 'Runtime version not found', advice: /GLEANER_RUNTIME_VERSION/, kind: 'bad-request'},
  {
    code: 8,
    message:
      "RESOURCE_EXHAUSTED: Quota limit 'TPUV2sPodPerProjectPerRegionForTPUAPI' has been exceeded. Limit: 0,0",
    advice: /the quota here is zero/,
    kind: 'quota',
  },
  {
    code: 403,
    message: "Quota 'TPUS_PER_TPU_FAMILY' exceeded. Limit: 0.0 in region us-east5.",
    advice: /the quota here is zero/,
    kind: 'quota',
  },
  {
    code: 9,
    message: "Quota limit 'X' has been exceeded. Limit: 0.5 in zone us-west4-a.",
    advice: /ask for more quota, or/,
    kind: 'quota',
  },
  {
    code: 9,
    message: "Quota limit 'X' has been exceeded. Limit: 16 in zone us-west4-a.",
    advice: /ask for more quota, or/,
    kind: 'quota',
  },
  {
    code: 7,
    message: "Permission 'tpu.nodes.create' denied on 'projects/p/locations/us-east5-b'",
    advice: /roles\/tpu\.admin, which has tpu\.nodes\.create$/,
  },
  {
    code: 403,
    message: "Required 'compute.instances.list' permission for 'projects/p'",
    advice: /a role with compute\.instances\.list$/,
  },
  {
    code: 403,
    message:
      "a@p.iam.gserviceaccount.com does not have storage.objects.get access to the Google Cloud Storage object. Permission 'storage.objects.get' denied on resource (or it may not exist).",
    advice: /roles\/storage\.objectUser, which has storage\.objects\.get$/,
  },
  {code: 7, message: 'The caller does not have permission', advice: /roles\/tpu\.admin$/},
];

describe("Advice on Google's errors", () => {
  for (const {message, code, advice, kind = 'permission'} of ADVICE)
    it(`"${message.slice(0, 70)}" says what to do, on one line`, () => {
      const given = code === undefined ? new Error(message) : error(code, message);
      const {message: said} = tpuError('create tpu-a', 'us-east5-b', given);
      assert.match(said, advice);
      assert.ok(
        said.startsWith(`Failed to create tpu-a in us-east5-b: ${message.replace(/\.$/, '')}; `) &&
          !said.includes('\n'),
      );
      assert.equal(tpuFailure(given), kind);
    });

  it('a call without valid credentials is not repeated', () => {
    assert.ok(!isTransient(new Error('Could not load the default credentials.')));
    assert.ok(!isTransient(error(2, 'Getting metadata from plugin failed with error: invalid_grant')));
    assert.ok(isTransient(error(2, 'Getting metadata from plugin failed with error: ECONNRESET')));
  });

  it('a reason without a known cause stays as it is, on one line', () => {
    assert.equal(withAdvice(error(13, 'Internal\n  error')), 'Internal error');
    assert.equal(withAdvice(error(13, 'Internal error'), 'try again'), 'Internal error; try again');
  });
});
