import assert from 'node:assert/strict';
import {type Exec, type ExecHost, execTimes} from '../../../../shared/domain/records/exec.ts';
import {NO_HOST} from '../../../../shared/domain/records/worker.ts';
import {
  decideEndExec,
  decideTakeExec,
  type EndExecState,
  type TakeExecState,
} from '../../../../shared/domain/requests/host-requests.ts';
import {aConfig, at, aWorker, T0} from '../../../world/builders.ts';
import {HOLDER} from '../../../world/scenes/jobs.ts';

const NAMES_IT = aWorker({phase: 'idle', execs: ['e1'], hosts: {0: {...NO_HOST, hostname: 'h'}}});
const EXEC: Exec = {
  ...{exec: 'e1', target: 'tpu', argv: ['hostname'], shell: false, timeout_s: 60, requested_by: null},
  ...{message_id: 'm', status: 'running', reason: null, is_assigned: true},
  ...{hosts: 1, hosts_done: 0, hosts_failed: 0, completed_at: null, output_path: 'gs://bucket/execs/e1/'},
  ...execTimes(60, T0, 30),
};
const HOST: ExecHost = {
  ...HOLDER,
  ...{host: 0, hostname: null, status: 'waiting', exit_code: null, error: null},
  ...{started_at: null, ended_at: null, expire_at: at(0), output_path: 'gs://bucket/execs/e1/0/'},
};
const RUNNING: ExecHost = {...HOST, status: 'running', started_at: at(0)};
const ENDED: ExecHost = {...RUNNING, status: 'exited', exit_code: 0};

describe('a host that takes a command', () => {
  const TAKEN: TakeExecState = {
    ...{worker: NAMES_IT, exec: EXEC, execHost: HOST},
    ...{pool: {...aConfig().pool, source_version: 4}, bucket: 'bucket'},
  };
  const decide = (state: Partial<TakeExecState>, now = T0) =>
    decideTakeExec({...TAKEN, ...state}, {exec: 'e1', host: 0}, now);

  it('is marked as running under its name, and gets what to run for how long', () => {
    const {answer, writes} = decide({}, T0 + 330_000);
    const {exec} = answer.body as {exec: Record<string, unknown>};
    assert.deepEqual([exec.argv, exec.timeout_s, exec.source_version], [['hostname'], 30, 4]);
    assert.equal(exec.folder, `execs/e1/${HOLDER.worker}/0/`);
    const {status, hostname, started_at} = writes?.execHost?.host ?? {};
    assert.deepEqual([status, hostname, started_at], ['running', 'h', at(330)]);
  });

  it('hears the same after a lost answer, and changes nothing', () => {
    const again = decide({execHost: RUNNING});
    assert.deepEqual(again, {answer: decide({}).answer});
  });

  const refusals: {name: string; given: Partial<TakeExecState>; now?: number; frees?: boolean}[] = [
    {name: 'a command that has ended', given: {exec: {...EXEC, status: 'done'}}, frees: true},
    {name: 'a command whose document is deleted', given: {exec: undefined}, frees: true},
    {name: 'a command that is too late to start', given: {}, now: T0 + 360_000},
    {name: 'a command that it has ended', given: {execHost: ENDED}},
    {name: 'a command of another worker', given: {execHost: undefined}},
    {name: 'a command of an earlier incarnation', given: {execHost: {...HOST, incarnation: 1}}},
  ];
  for (const {name, given, now, frees = false} of refusals)
    it(`gets nothing: ${name}${frees ? ' leaves its worker' : ''}`, () => {
      const {answer, writes} = decide(given, now);
      assert.deepEqual([answer.status, (answer.body as {action: string}).action], [200, 'none']);
      assert.deepEqual(writes, frees ? {worker: {...NAMES_IT, execs: []}} : undefined);
    });
});

describe('a host that reports the end of a command', () => {
  const exited = {exec: 'e1', host: 0, outcome: 'exited', exit_code: 3, error: null} as const;
  const cases: {
    name: string;
    given: Partial<EndExecState>;
    then: {status: number; host?: ExecHost['status']; frees?: boolean};
  }[] = [
    {name: 'has run it', given: {}, then: {status: 200, host: 'exited', frees: true}},
    ...[HOST, RUNNING].map(other => ({
      name: `has run it before another host, which is ${other.status}`,
      given: {others: [other, undefined, ENDED]},
      then: {status: 200, host: 'exited' as const},
    })),
    {
      name: 'has run it after all others',
      given: {others: [undefined, ENDED]},
      then: {status: 200, host: 'exited', frees: true},
    },
    {name: 'repeats its report', given: {execHost: ENDED}, then: {status: 200}},
    {name: 'has no such command', given: {execHost: undefined}, then: {status: 409}},
    {name: 'is of a later incarnation', given: {execHost: {...RUNNING, incarnation: 1}}, then: {status: 409}},
  ];
  for (const {name, given, then} of cases)
    it(name, () => {
      const state = {worker: NAMES_IT, execHost: RUNNING, ...given};
      const {answer, writes, endsExec} = decideEndExec(state, exited, T0);
      assert.equal(answer.status, then.status);
      assert.equal(endsExec, then.status === 200 ? 'e1' : undefined);
      assert.equal(writes?.execHost?.host.status, then.host);
      assert.deepEqual(writes?.worker?.execs, then.frees ? [] : undefined);
    });
});
