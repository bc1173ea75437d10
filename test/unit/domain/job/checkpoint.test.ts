import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  afterFailure,
  checkpointOrder,
  ownUrl,
  restoreSeconds,
  withStorage,
  withVersion,
} from '../../../../shared/domain/job/checkpoint.ts';
import {decideRetryJob} from '../../../../shared/domain/job/commands.ts';
import {endAttempt, grantJob} from '../../../../shared/domain/job/lifecycle.ts';
import {type HostVersion, NO_CHECKPOINT} from '../../../../shared/domain/records/checkpoint.ts';
import type {Job, JobLease} from '../../../../shared/domain/records/job.ts';
import {decideCheckpoint} from '../../../../shared/domain/requests/checkpoint.ts';
import {at, T0} from '../../../world/builders.ts';
import {aJob, aRunningJob, HOLDER} from '../../../world/scenes/jobs.ts';

const GB = 1e9;
const version = (given: Partial<HostVersion> = {}): HostVersion => ({
  ...{version: 1, digest: 'd', label: null, bytes: GB, files: 1, from_ms: 0, until_ms: 60_000},
  ...{objects: 2, is_new: true},
  ...given,
});
type Running = Job & {lease: JobLease};
const running = () => aRunningJob() as Running;

/** The running job after a host has reported a version. */
function told(
  job: Running,
  index: number,
  given: Partial<HostVersion> = {},
  processes = 2,
  now = T0,
): Running {
  return {...withVersion(job, {index, processes}, version(given), now), lease: job.lease};
}

type Report = (job: Running) => Running;
const ofHost =
  (index: number, given: Partial<HostVersion> = {}): Report =>
  job =>
    told(job, index, given);

/** Versions of the two hosts that count; undefined without a complete version. */
function completeOf({checkpoint_state}: Job): number[] | undefined {
  const parts = checkpoint_state?.complete?.parts;
  return parts && [0, 1].map(index => parts[index]?.version ?? 0);
}

describe('the version that counts', () => {
  const cases: {name: string; reports: Report[]; then: number[] | undefined}[] = [
    {name: 'is none before every host has one', reports: [ofHost(0)], then: undefined},
    {name: 'has parts of one moment', reports: [ofHost(0), ofHost(1)], then: [1, 1]},
    {
      name: 'is none where the hosts were quiet at different times',
      reports: [ofHost(0, {until_ms: 10_000}), ofHost(1, {from_ms: 20_000})],
      then: undefined,
    },
    {
      name: 'is none where the shared time is shorter than clocks may differ',
      reports: [ofHost(0, {until_ms: 21_500}), ofHost(1, {from_ms: 20_000})],
      then: undefined,
    },
    {
      name: 'pairs an older version of one host with the version of the same time of the other',
      reports: [
        ofHost(0, {version: 1, from_ms: 0, until_ms: 50_000}),
        ofHost(0, {version: 2, from_ms: 60_000, until_ms: 62_000}),
        ofHost(1, {version: 1, from_ms: 5_000, until_ms: 40_000}),
      ],
      then: [1, 1],
    },
    {
      name: 'moves when a host reports that its folder stayed as it was',
      reports: [
        ofHost(1, {until_ms: 1_000}),
        ofHost(0, {version: 4, from_ms: 100_000, until_ms: 110_000}),
        ofHost(1, {until_ms: 120_000}),
      ],
      then: [4, 1],
    },
    {
      name: 'has equal labels, whenever they were given',
      reports: [
        ofHost(0, {label: 'a', until_ms: 0}),
        ofHost(1, {label: 'a', from_ms: 90_000, until_ms: 90_000}),
      ],
      then: [1, 1],
    },
    {
      name: 'is none for a label that a host has given twice, or that is empty',
      reports: [
        ofHost(0, {label: 'x'}),
        ofHost(0, {version: 2, label: 'x', from_ms: 90_000}),
        ofHost(1, {label: 'x'}),
        ofHost(1, {version: 2, label: '', from_ms: 90_000}),
        ofHost(0, {version: 3, label: '', from_ms: 95_000}),
      ],
      then: undefined,
    },
    {
      name: 'is none while the hosts have what they restored',
      reports: [ofHost(0, {is_new: false}), ofHost(1, {is_new: false})],
      then: undefined,
    },
    {
      name: 'never has different labels',
      reports: [ofHost(0, {label: 'a'}), ofHost(1, {label: 'b'})],
      then: undefined,
    },
    {
      name: 'pairs a label with a host that names none and was quiet',
      reports: [ofHost(0, {label: 'a', from_ms: 30_000, until_ms: 30_000}), ofHost(1)],
      then: [1, 1],
    },
  ];
  for (const {name, reports, then} of cases)
    it(name, () => {
      const job = reports.reduce((job, report) => report(job), running());
      assert.deepEqual(completeOf(job), then);
    });

  it('never joins two hosts that shared no moment, in any order of reports', () => {
    const saves = fc.array(fc.integer({min: 1, max: 30}), {minLength: 1, maxLength: 6});
    const skew = fc.integer({min: -2_000, max: 2_000});
    fc.assert(
      fc.property(saves, saves, skew, fc.infiniteStream(fc.boolean()), (first, second, skew_ms, turns) => {
        const spansOf = (gaps: number[], off_ms: number) => {
          let now = 100_000;
          return gaps.map((gap, index) => {
            const from_ms = now + off_ms;
            now += gap * 1000;
            const truth = [from_ms - off_ms, now] as const;
            return {version: index + 1, from_ms, until_ms: now + off_ms, truth};
          });
        };
        const hosts = [spansOf(first, 0), spansOf(second, skew_ms)];
        let job = running();
        const next = [0, 0];
        for (const turn of turns) {
          const process =
            (next[0] ?? 0) >= first.length ? 1 : (next[1] ?? 0) >= second.length ? 0 : Number(turn);
          const span = hosts[process]?.[next[process] ?? 0];
          if (!span) break;
          next[process] = (next[process] ?? 0) + 1;
          const {truth: _, ...given} = span;
          job = told(job, process, given);
          const [a, b] = completeOf(job) ?? [];
          if (a === undefined || b === undefined) continue;
          const [one, other] = [hosts[0]?.[a - 1]?.truth ?? [0, 0], hosts[1]?.[b - 1]?.truth ?? [0, 0]];
          assert.ok(Math.max(one[0], other[0]) <= Math.min(one[1], other[1]), `${one} and ${other}`);
        }
      }),
    );
  });

  it('counts under the lease alone', () => {
    const request = {...HOLDER, host: 0, lease: {job: 'my-job', epoch: 3}, version: version(), problem: null};
    const {answer, writes, sweeps} = decideCheckpoint(aRunningJob(), request, T0);
    const bytes = writes?.job?.checkpoint_state?.complete?.bytes;
    assert.deepEqual([answer.status, bytes, sweeps], [200, GB, 'my-job']);
    for (const job of [undefined, aJob(), aRunningJob({epoch: 4, lease: {...running().lease, epoch: 4}})])
      assert.equal(decideCheckpoint(job, request, T0).answer.status, 409);
    assert.equal(decideCheckpoint(aRunningJob(), {...request, worker: 'other'}, T0).answer.status, 409);
  });
});

describe('the checkpoint of a job', () => {
  const withBoth = () => {
    const first = told(running(), 0, {}, 1);
    return told(first, 0, {version: 2}, 1, T0 + 60_000);
  };

  it('is ordered with the two newest versions and the limits of the job', () => {
    const checkpoint = {max_gb: 5, max_files: null, every_s: null};
    const order = checkpointOrder({...withBoth(), checkpoint}, 'b');
    assert.deepEqual([order.max_gb, order.max_files, order.every_s], [5, 10_000, 60]);
    const stored = order.versions.map(({parts}) => parts[0]?.object);
    const manifests = [2, 1].map(number => `checkpoints/my-job/epoch_3/host_0/00000${number}/manifest.json`);
    assert.deepEqual(stored, manifests);
  });

  it('costs its bytes over time and its objects, as part of the budget', () => {
    const large = {bytes: 100 * GB, objects: 1500};
    const first = told(running(), 0, large, 1);
    const objects = 1500 * 0.000005;
    assert.ok(Math.abs(first.spent_usd - objects) < 1e-9);
    assert.equal(told(first, 0, large, 1).spent_usd, first.spent_usd, 'a repeated report costs nothing');
    const later = withStorage(first, T0 + 730 * 3_600_000);
    assert.ok(Math.abs((later.checkpoint_state?.storage_usd ?? 0) - objects - 2) < 1e-6);
    assert.equal(later.spent_usd, later.checkpoint_state?.storage_usd);
  });

  it('gives its restore time beyond the timeout', () => {
    const {complete} = withBoth().checkpoint_state ?? NO_CHECKPOINT;
    assert.deepEqual([restoreSeconds(null), restoreSeconds(complete)], [0, 80]);
    const waiting = aJob({checkpoint_state: withBoth().checkpoint_state});
    const {due_at, checkpoint_state} = grantJob(waiting, HOLDER, null, T0);
    assert.equal(due_at, at(waiting.timeout + 180 + 80));
    assert.deepEqual([checkpoint_state?.restored_at, checkpoint_state?.pending], [at(60), {}]);
  });

  it('is another one after a retry with an empty checkpoint', () => {
    const ended = endAttempt(withBoth(), {outcome: 'failed', cause: 'exit', error: 'a bug'}, null, T0);
    const again = (isFresh: boolean) => {
      const decision = decideRetryJob(ended, at(200), T0, isFresh);
      return decision.kind === 'applied' ? decision.next : assert.fail(decision.reason);
    };
    assert.equal(checkpointOrder(again(false), 'b').versions.length, 2);
    assert.equal(checkpointOrder(again(true), 'b').versions.length, 0);
    const urls = [again(false), again(true)].map(job => ownUrl(job, 'b'));
    assert.deepEqual(urls, ['gs://b/checkpoints/my-job/own', 'gs://b/checkpoints/my-job/own/fresh_3']);
  });

  it('goes back once to the version before, after two failures soon after one restore', () => {
    const fail = (job: Job, now: number) =>
      endAttempt(job, {outcome: 'failed', cause: 'exit', error: 'a bug'}, null, now);
    const ended = fail(withBoth(), T0 + 100_000);
    const tryAgain = (job: Job, start: number) => fail(grantJob(job, HOLDER, null, start), start + 10_000);
    const once = tryAgain({...ended, max_retries: 9, status: 'scheduled'}, T0 + 200_000);
    assert.equal(once.checkpoint_state?.complete?.at, at(60));
    const twice = tryAgain({...once, status: 'scheduled'}, T0 + 300_000);
    assert.deepEqual([twice.checkpoint_state?.complete?.at, twice.checkpoint_state?.previous], [at(0), null]);
    assert.match(twice.checkpoint_state?.problem ?? '', /two attempts failed soon after the restore/);
    assert.equal(afterFailure(tryAgain({...twice, status: 'scheduled'}, T0 + 400_000))?.complete?.at, at(0));
  });
});
