import assert from 'node:assert/strict';
import {setTimeout as sleep} from 'node:timers/promises';
import type {Job} from '../../shared/domain/records/job.ts';
import {isAlive} from '../../shared/domain/records/worker.ts';
import type {Document} from '../../shared/ports/ports.ts';
import {FAST, signal} from '../support/machine/home.ts';
import {seeded} from '../world/clock.ts';
import {JobHome} from './job-home.ts';

/** Each job leaves a line in its artifacts and a result: both name the process that wrote them. */
const WORK =
  'id="$JOB_ID $$ $(date +%s%N)"; sleep SECONDS; echo "$id" > "$JOB_ARTIFACTS/line.txt"; echo "$id" > "$JOB_RESULT"';

/** Kinds of jobs in turn, with the end that each must have. */
const KINDS: {fields: (random: () => number) => Document; status: Job['status']; cause: Job['cause']}[] = [
  ...Array.from({length: 6}, () => ({
    fields: (random: () => number) => ({command: WORK.replace('SECONDS', (1 + random()).toFixed(1))}),
    status: 'completed' as const,
    cause: null,
  })),
  // The last host fails, and the others would go on.
  {
    fields: () => ({command: '[ $JOB_HOST != $((JOB_HOSTS - 1)) ] || exit 3; sleep 100', max_retries: 1}),
    status: 'failed',
    cause: 'exit',
  },
  {fields: () => ({code: 'x = 1', command: 'true'}), status: 'failed', cause: 'invalid'},
];

type Sizes = {jobs: number; workers: number; hosts: number; disturbances: number};

const FAULTS = ['preempt', 'preempt', 'preempt-with-notice', 'kill'];
const HOST_FAULTS = ['dead', 'preempt-with-notice', 'restart', 'cut', 'kill', 'preempt'];

async function disturb(cloud: JobHome, {hosts, disturbances}: Sizes, random: () => number): Promise<void> {
  const faults = hosts === 1 ? FAULTS : HOST_FAULTS;
  for (let number = 0; number < disturbances; number++) {
    // The first disturbance meets the jobs that run now.
    if (number > 0) await sleep(random() * 3000 * hosts);
    const [worker] = (await cloud.workers()).filter(each => isAlive(each) && each.work !== null);
    const groups = cloud.home.vmGroups();
    const group = groups[Math.floor(random() * groups.length)];
    const fault = faults[number % faults.length] ?? '';
    const isOfHost = hosts > 1 && fault !== 'preempt';
    if (fault === 'kill') {
      if (group !== undefined && group > 1) signal(-group);
    } else if (worker) {
      const target = isOfHost ? `${worker.name}-w-${Math.floor(random() * hosts)}` : worker.name;
      await cloud.home.fault(fault, target).catch(requireGone);
    }
  }
}

/** An earlier fault may have taken the TPU in the meantime. */
function requireGone(error: Error): void {
  assert.match(error.message, /is (PREEMPTED|CREATING)|Unknown TPU/);
}

/** The attempt of a completed job, and its line in the bucket, are the only ones that count. */
async function checkCompleted(cloud: JobHome, job: Job, hosts: number): Promise<void> {
  const completed = job.attempts.filter(({outcome}) => outcome === 'completed');
  assert.deepEqual(
    completed.map(({epoch}) => epoch),
    [job.epoch],
    JSON.stringify(job),
  );
  const lines = await Promise.all(
    Array.from({length: hosts}, (_, host) => {
      const ofHost = hosts === 1 ? '' : `host_${host}/`;
      return cloud.text(`jobs/${job.job}/epoch_${job.epoch}/${ofHost}artifacts/`);
    }),
  );
  for (const line of lines) assert.ok(line.startsWith(`${job.job} `), line);
  assert.equal(new Set(lines).size, hosts, 'each host ran');
  assert.equal(job.result, lines[0], 'the result is of the recorded run');
  for (const {epoch, outcome} of job.attempts)
    if (outcome !== 'completed') assert.ok(epoch < job.epoch, JSON.stringify(job.attempts));
}

describe('Many jobs on preemptible workers', () => {
  let cloud: JobHome;
  before(async () => {
    cloud = await JobHome.start(3, [], {}, FAST);
    const create = ['pool', 'create', 'slices', '--accelerator', 'v4-16', '--zones', 'us-central1-a'];
    await cloud.succeeds(...create, '--workers-per-zone', '2');
  });
  after(() => cloud?.remove());

  const sizes: Sizes[] = [
    {jobs: 12, workers: 3, hosts: 1, disturbances: 3},
    {jobs: 200, workers: 3, hosts: 1, disturbances: 40},
    {jobs: 50, workers: 2, hosts: 2, disturbances: 18},
  ];
  for (const size of sizes) {
    const {jobs, workers, hosts} = size;
    const pool = hosts === 1 ? 'tpu' : 'slices';
    it(`all end as they must, each completed run recorded once: ${jobs} jobs on ${workers} workers of ${hosts} hosts @long`, async () => {
      const random = seeded(jobs);
      const prefix = `many-${jobs}-`;
      for (let number = 0; number < jobs; number++)
        await cloud.create(`${prefix}${number}`, {pool, ...KINDS[number % KINDS.length]?.fields(random)});
      await cloud.home.until(
        'a running job',
        () => cloud.jobs(),
        found => found.some(({status}) => status === 'running'),
      );
      await disturb(cloud, size, random);
      const ended = await cloud.home.until(
        'the end of every job',
        async () => (await cloud.jobs()).filter(({job}) => job.startsWith(prefix)),
        found =>
          found.length === jobs &&
          found.every(({status}) => !['pending', 'scheduled', 'running'].includes(status)),
        1200,
      );
      for (const job of ended) {
        const kind = KINDS[Number(job.job.slice(prefix.length)) % KINDS.length];
        assert.deepEqual([job.status, job.cause], [kind?.status, kind?.cause], JSON.stringify(job));
        if (job.status === 'completed') await checkCompleted(cloud, job, hosts);
        if (job.cause === 'exit') assert.equal(job.failures, 2, JSON.stringify(job));
      }
      const epochs = ended.flatMap(({job, attempts}) => attempts.map(({epoch}) => `${job} ${epoch}`));
      assert.equal(new Set(epochs).size, epochs.length, 'one attempt for each epoch');
      const preempted = ended
        .flatMap(({attempts}) => attempts)
        .filter(({outcome}) => outcome === 'preempted');
      assert.ok(preempted.length > 0, 'the disturbances met jobs');
    });
  }
});
