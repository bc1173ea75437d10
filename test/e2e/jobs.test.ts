import assert from 'node:assert/strict';
import {execFile} from 'node:child_process';
import {promisify} from 'node:util';
import {secretFile} from '../../emulator/secrets.ts';
import {hasEnded} from '../../shared/domain/records/worker.ts';
import {JobHome} from './job-home.ts';

/** Code as the job service of the seeds had it, with a file for the bucket. */
const PRODUCT = `
import os
x = jnp.ones((1000, 1000))
logger.info(f"challenge {challenge_number} on {jax.devices()[0].platform}")
with open(os.path.join(os.environ["JOB_ARTIFACTS"], "sum.txt"), "w") as file:
    file.write(os.environ["JOB_ID"])
result = jnp.dot(x, x).sum()
`;

/** Text of a secret. */
const KEY = 'a-key-that-nobody-may-see';

/** Prints a line a second. */
const COUNTER = 'for n in $(seq 600); do echo "line $n"; sleep 1; done';

describe('A job on a local cloud', () => {
  let cloud: JobHome;
  before(async () => {
    const setting = 'wandb=projects/gleaner-local/secrets/wandb';
    cloud = await JobHome.start(1, ['--job-secrets', setting], {wandb: KEY});
    // Jobs that wait keep their worker. Jobs of one priority may run in any order.
    await cloud.send('syntax', {priority: 3, code: 'x = (1,\ny = 2\n'});
    await cloud.send('loop', {priority: 2, command: 'while :; do :; done', timeout: 2});
    await cloud.send('counter', {priority: 1, command: COUNTER});
    await cloud.send('next', {command: 'echo fine > "$JOB_RESULT"'});
  });
  after(() => cloud?.remove());

  it('completes with its result, its output and its files in the bucket', async () => {
    const id = await cloud.submit({
      ...{challenge_number: 42, code: PRODUCT, timeout: 120, priority: 4},
      metadata: {submitted_by: 'user@example.com'},
    });
    const job = await cloud.ends(id);
    assert.deepEqual([job.status, job.error, job.cause], ['completed', null, null]);
    assert.equal(Number(job.result), 1e9);
    assert.deepEqual(job.metadata, {submitted_by: 'user@example.com'});
    const [attempt, ...others] = job.attempts;
    assert.deepEqual([attempt?.epoch, attempt?.outcome, others], [1, 'completed', []]);
    assert.match(job.ran?.jax_version ?? '', /^\d+\.\d+\.\d+/);
    const times = [job.created_at, job.scheduled_at, job.started_at, job.completed_at];
    assert.deepEqual(times, [...times].sort(), 'each step has its time');
    assert.match(await cloud.output(id), /challenge 42 on cpu/);
    assert.equal(await cloud.text(`jobs/${id}/epoch_1/artifacts/`), id);
    const {bucket} = cloud.home.ready;
    assert.ok(job.log_path?.startsWith(`gs://${bucket}/jobs/${id}/epoch_1/`), String(job.log_path));
    assert.ok(
      job.artifacts_path?.startsWith(`gs://${bucket}/jobs/${id}/epoch_1/`),
      String(job.artifacts_path),
    );
    assert.equal(JSON.parse(await cloud.succeeds('jobs', 'show', id, '--json')).status, 'completed');
  });

  it('has its variables and its secrets, and no file of the cloud or of its TPU has a secret', async () => {
    const command = 'echo $STEPS $(printf %s $KEY | wc -c) $KEY';
    const flags = ['--env', 'STEPS=a=b', '--secret', 'KEY=wandb'];
    const id = await cloud.submit({command, priority: 5}, ...flags);
    await cloud.prints(id, `a=b ${KEY.length} ***\n`);
    assert.match(await cloud.succeeds('jobs', 'show', id), /secrets +\{"KEY":"wandb"\}/);
    const {dir} = cloud.home;
    // Ends with code 2 where the worker deletes a folder meanwhile.
    const {stdout, stderr: unread} = await promisify(execFile)('grep', ['-rlaF', KEY, dir]).catch(e => e);
    assert.deepEqual(stdout.trim().split('\n'), [secretFile(dir, 'wandb', '1')]);
    assert.doesNotMatch(unread, /^grep:(?!.*: No such file or directory$)/m);
    const {stderr} = await cloud.gleaner('jobs', 'submit', '--test', '--env', 'NO_SUCH_NAME');
    assert.match(stderr, /this shell exports no NO_SUCH_NAME/);
  });

  it('fails with the line of a syntax error', async () => {
    const job = await cloud.ends('syntax');
    assert.deepEqual([job.status, job.cause, job.exit_code], ['failed', 'exit', 1]);
    assert.match(job.error ?? '', /SyntaxError/);
    assert.match(await cloud.output(job.job), /line 1[\s\S]*x = \(1,/);
  });

  it('fails at its timeout in an endless loop', async () => {
    const job = await cloud.ends('loop');
    assert.deepEqual([job.status, job.cause, job.failures], ['failed', 'timeout', 1]);
    assert.match(job.error ?? '', /timeout of 2 s/);
  });

  it('ends at a cancel, and its worker takes the next job', async () => {
    await cloud.prints('counter', 'line 2');
    await cloud.succeeds('jobs', 'cancel', 'counter');
    const job = await cloud.ends('counter');
    assert.deepEqual([job.status, job.cause], ['cancelled', 'cancelled']);
    const next = await cloud.ends('next');
    assert.deepEqual([next.status, next.result?.trim()], ['completed', 'fine']);
  });

  it('runs again after a preemption, without a count of retries, and completes once', async () => {
    const script = 'echo start; sleep 5; echo "$JOB_ID" > "$JOB_RESULT"; echo end';
    await cloud.send('preempted', {command: script, max_retries: 0});
    const running = await cloud.becomes('preempted', 'running');
    await cloud.home.fault('preempt', running.lease?.worker ?? '');
    const job = await cloud.ends('preempted');
    assert.deepEqual([job.status, job.failures, job.result?.trim()], ['completed', 0, 'preempted']);
    assert.deepEqual(
      job.attempts.map(({epoch, outcome, cause}) => [epoch, outcome, cause]),
      [
        [1, 'preempted', 'preempted'],
        [job.epoch, 'completed', null],
      ],
    );
    assert.match(await cloud.output('preempted', job.epoch), /start\nend/);
  });

  it('leaves no TPU when the last job has ended', async () => {
    await cloud.home.until(
      'no worker',
      () => cloud.workers(),
      workers => workers.every(hasEnded),
    );
  });

  it('is cleared with every other ended job, though a message deletes 200', async () => {
    await cloud.home.read(store =>
      store.transaction(async tx => {
        for (let index = 0; index < 201; index++) tx.create(`jobs/old-${index}`, {status: 'completed'});
      }),
    );
    assert.match(await cloud.succeeds('jobs', 'clear', '--yes'), /all ended jobs are deleted/);
    assert.deepEqual(await cloud.jobs(), []);
  });
});
