import assert from 'node:assert/strict';
import {
  type Exec,
  type ExecHost,
  execTimes,
  isOverdue,
  lossReason,
  parseTarget,
  secondsLeft,
  withExec,
  withoutExec,
} from '../../../../shared/domain/records/exec.ts';
import {aWorker, T0} from '../../../world/builders.ts';

describe('a command', () => {
  it('may start for five minutes with its whole timeout, and then for the rest', () => {
    const exec = {timeout_s: 60, ...execTimes(60, T0, 30)} as Exec;
    const left = [0, 300, 330, 360, 361].map(seconds => secondsLeft(exec, T0 + seconds * 1000));
    assert.deepEqual(left, [60, 60, 30, 0, -1]);
  });

  it('is overdue a minute after its deadline', () => {
    const exec = {timeout_s: 60, ...execTimes(60, T0, 30)} as Exec;
    assert.deepEqual(
      [420, 421].map(seconds => isOverdue(exec, T0 + seconds * 1000)),
      [false, true],
    );
  });

  it('is lost on a host whose incarnation of the worker lives no more', () => {
    const exec = {timeout_s: 60, ...execTimes(60, T0, 30)} as Exec;
    const host = {worker: 'w', incarnation: 2} as ExecHost;
    const workers = [
      aWorker({phase: 'idle'}),
      aWorker({phase: 'deleting'}),
      aWorker({phase: 'idle', incarnation: 3}),
      undefined,
    ];
    const isLost = workers.map(worker => lossReason(host, exec, worker, T0) !== undefined);
    assert.deepEqual(isLost, [false, true, true, true]);
  });

  it('names all workers, a worker or a pool', () => {
    assert.deepEqual(
      ['all', 'tpu-us-central1-a-0', 'tpu'].map(target => parseTarget(target).kind),
      ['all', 'worker', 'pool'],
    );
  });

  it('is once in its worker', () => {
    const worker = aWorker();
    const once = withExec(worker, 'e1');
    assert.deepEqual(once.execs, ['e1']);
    assert.equal(withExec(once, 'e1'), once);
    assert.deepEqual(withoutExec(once, 'e1').execs, []);
    assert.equal(withoutExec(worker, 'e1'), worker);
  });
});
