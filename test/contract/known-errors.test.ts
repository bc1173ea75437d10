/** Messages that users of Google's services have reported, with other names: each reader of an error says the same of it. */
import assert from 'node:assert/strict';
import {globSync, readFileSync} from 'node:fs';
import {StepFailed} from '../../cli/deploy/terraform.ts';
import type {Context} from '../../cli/doctor/context.ts';
import {diagnose} from '../../cli/doctor/doctor.ts';
import {GoogleError} from '../../client/google/api.ts';
import {nextStep, waitText} from '../../shared/domain/records/constraint.ts';
import {OPEN} from '../../shared/domain/records/limiter.ts';
import {afterRefusal, limiterConstraint} from '../../shared/domain/zone/limiter.ts';
import {isTransient, kindOf, tpuError, tpuFailure, withAdvice} from '../../shared/google/errors.ts';
import {type Kind, knownError} from '../../shared/google/known-errors.ts';
import {ROOT} from '../support/machine/process.ts';

const error = (code: number | string, message = 'no'): Error => Object.assign(new Error(message), {code});

type Row = [kind: Kind, code: number, message: string, advice: string];

/** Kinds, codes, messages and expressions of the advice. */
const MESSAGES = readFileSync(`${ROOT}test/fixtures/google-errors.jsonl`, 'utf8')
  .trim()
  .split('\n')
  .map(line => JSON.parse(line) as Row);
const firstOf = (wanted: Kind) => MESSAGES.find(([kind]) => kind === wanted)?.[2] ?? assert.fail();

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

describe('What the errors of Google mean', () => {
  for (const [kind, code, message, source] of MESSAGES) {
    const advice = new RegExp(source);
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
      // Terraform breaks lines within a box.
      const box = message.replace(/(.{30}) /g, '$1\n│ ');
      const failed = new StepFailed('apply', `╷\n│ Error: ${box}\n│ \n│   with google_x.y,\n╵\n`);
      const said = knownError(message);
      assert.equal(failed.kind, said?.kind ?? 'unknown');
      if (said?.mend) assert.match(failed.message, advice);
      if (said) return;
      const whole = `${message.replace(/\s+/g, ' ')} with google_x.y,`;
      assert.equal(failed.message, `Failed to apply: ${whole}; this error is not known here`);
    });

    it(`to doctor: ${about}`, async () => {
      const {mend} = knownError(message) ?? {};
      const refuse = async () => {
        throw new GoogleError(code, 'GET x', message);
      };
      const context = {
        api: {endpoint: undefined, token: undefined, call: refuse, account: async () => 'me'},
        store: {query: async () => [], get: async () => undefined},
        ...{is_google: true, project: 'p', name: 'gleaner', region: 'us-central1', settings: {}},
        ...{zones: ['us-central1-a'], accelerator: 'v5litepod-4', objects: {list: refuse, create: refuse}},
      };
      const findings = await diagnose(context as unknown as Context);
      const apis = findings.find(({check}) => check === 'APIs');
      assert.equal(apis?.evidence, `Failed to GET x: ${message}${mend ? `; ${mend}` : ''}`);
    });
  }

  /** Files that read a text of another program, or one of Gleaner's own. */
  const OTHERS: Record<string, string> = {
    'cli/checks/repository.ts': 'git',
    'cli/run/task-result.ts': 'an outcome of on-control',
    'emulator/state/database.ts': 'SQLite',
    'shared/contracts/messages/rejection-reasons.ts': 'Zod',
    'shared/domain/worker/provider-states.ts': 'the driver of the TPU, as a worker reports it',
  };
  const READS =
    /\.(?:test|exec)\((?:[^()]|\([^()]*\))*(?:message\b|reason|stderr|[eE]rror\b)|(?:message|reason|stderr|stdout)\)?\.(?:includes|match|startsWith|endsWith|search)\(/;

  it('stands in one table: no other file looks for words in an error', () => {
    const files = globSync('{cli,client,dashboard,emulator,functions,shared}/**/*.ts', {cwd: ROOT});
    const reading = files.filter(file =>
      readFileSync(ROOT + file, 'utf8')
        .split('\n')
        .some(line => READS.test(line.replaceAll('message_id', ''))),
    );
    assert.deepEqual(reading.sort(), Object.keys(OTHERS).sort());
  });

  it('ends a deployment at the first error that a repeat does not mend, beside others that it does', () => {
    const failed = new StepFailed('apply', `Error: ${firstOf('early')}\n\nError: ${firstOf('quota')}\n`);
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
