import assert from 'node:assert/strict';
import {
  isAlreadyExists,
  isBucketMissing,
  isContention,
  isNotFound,
  isPermission,
  isPreconditionFailed,
  isRetryable,
  isTransient,
  reasonOf,
  storageReason,
  tpuError,
} from '../../shared/google/errors.ts';

const error = (code: number | string, message = 'no'): Error => Object.assign(new Error(message), {code});

describe("Google's errors", () => {
  it('a TpuError names the call, the zone, the cause and the remedy', () => {
    const failure = tpuError('create tpu-us-east5-b-0', 'us-east5-b', error(8, 'There is no more capacity'));
    assert.equal(failure.name, 'TpuError');
    assert.equal(failure.zone, 'us-east5-b');
    assert.match(
      failure.message,
      /^Failed to create tpu-us-east5-b-0 in us-east5-b: There is no more capacity; /,
    );
  });

  it('gRPC codes and HTTP statuses have the same meaning', () => {
    assert.deepEqual(
      [5, 404, '404', 6].map(code => isNotFound(error(code))),
      [true, true, true, false],
    );
    assert.deepEqual(
      [6, 409, 10].map(code => isAlreadyExists(error(code))),
      [true, true, false],
    );
    assert.deepEqual(
      [9, 412, 3].map(code => isPreconditionFailed(error(code))),
      [true, true, false],
    );
    assert.deepEqual(
      [7, 16, 401, 403, 5].map(code => isPermission(error(code))),
      [true, true, true, true, false],
    );
    assert.deepEqual(
      [10, 9].map(code => isContention(error(code))),
      [true, false],
    );
  });

  it('an error of the connection is transient', () => {
    for (const code of ['ECONNREFUSED', 'ECONNRESET', 'ENOTFOUND', 'ETIMEDOUT'])
      assert.ok(isTransient(error(code)), code);
    assert.ok(
      isTransient(
        new Error('request to http://127.0.0.1:9/ failed, reason: connect ECONNREFUSED 127.0.0.1:9'),
      ),
    );
    assert.ok(!isTransient(error(3)));
  });

  it('a missing bucket differs from a missing object', () => {
    assert.ok(isBucketMissing(error(404, 'The specified bucket does not exist.')));
    assert.ok(!isBucketMissing(error(404, 'No such object: b/x')));
  });

  it('the reason of an error omits the list of earlier attempts', () => {
    const many =
      'Total timeout exceeded: 14 UNAVAILABLE: connect ECONNREFUSED : Previous errors : [{message: 14},{message: 14}]';
    assert.equal(reasonOf(new Error(many)), 'Total timeout exceeded: 14 UNAVAILABLE: connect ECONNREFUSED');
  });

  it('the reason of an error is one line, and the message of a JSON body', () => {
    const body =
      '{\n "error": {"code": 403, "message": "a@b does not have storage.objects.get access\\nto x."}}';
    assert.equal(reasonOf(error(403, body)), 'a@b does not have storage.objects.get access to x');
    assert.equal(reasonOf(error(404, 'No such\n object: b/x\n')), 'No such object: b/x');
    assert.equal(reasonOf(error(500, '{"error": 1}')), '{"error": 1}');
    assert.equal(reasonOf(error(500, '{half')), '{half');
  });

  it('Cloud Storage may succeed later after 408, 429, 500, 502 to 504 and broken connections', () => {
    for (const code of [
      ...[408, 429, 500, 502, 503, 504],
      ...['ECONNRESET', 'EHOSTUNREACH', 'ERR_STREAM_PREMATURE_CLOSE'],
    ])
      assert.ok(isRetryable(error(code)), String(code));
    for (const code of [400, 401, 403, 404, 409, 412, 416, 501, 'ENOENT'])
      assert.ok(!isRetryable(error(code)), String(code));
  });

  const STORAGE: {name: string; error: Error; advice: string}[] = [
    {
      name: 'a missing bucket',
      error: error(404, 'The specified bucket does not exist.'),
      advice: 'create the bucket b, or correct GLEANER_BUCKET',
    },
    {
      name: 'a refused token',
      error: error(401, 'Invalid Credentials'),
      advice: 'sign in with `gcloud auth application-default login`',
    },
    {
      name: 'expired credentials of a person',
      error: error('400', 'invalid_grant: reauth related error (invalid_rapt)'),
      advice: 'sign in with `gcloud auth application-default login`',
    },
    {
      name: 'absent credentials',
      error: new Error('Could not load the default credentials. Browse to https://cloud.google.com/docs'),
      advice: 'sign in with `gcloud auth application-default login`',
    },
    {
      name: 'a missing permission',
      error: error(403, "Permission 'storage.objects.get' denied on resource (or it may not exist)."),
      advice: 'grant the calling account roles/storage.objectUser, which has storage.objects.get',
    },
    {
      name: 'a project without billing',
      error: error(403, 'The billing account for the owning project is disabled in state absent'),
      advice: 'link the project to an open billing account',
    },
    {
      name: 'a refusal without a permission',
      error: error(403, 'Forbidden'),
      advice: 'grant the account this permission on b, or set GLEANER_BUCKET to a bucket of this project',
    },
    {name: 'an outage', error: error(503), advice: 'try again later'},
    {name: 'a bad request', error: error(400, 'Invalid argument'), advice: ''},
    {
      name: 'a missing token of the local cloud',
      error: error(401, 'Refused a request without the token of the local cloud: run `eval …`'),
      advice: '',
    },
  ];
  for (const {name, error, advice} of STORAGE)
    it(`the advice for ${name} of Cloud Storage is "${advice}"`, () => {
      assert.equal(storageReason(error, 'b'), advice ? `${reasonOf(error)}; ${advice}` : reasonOf(error));
    });
});
