import assert from 'node:assert/strict';
import {type ChildProcess, spawn} from 'node:child_process';
import {once} from 'node:events';
import {existsSync, readdirSync, readFileSync} from 'node:fs';
import {join} from 'node:path';
import {createInterface} from 'node:readline';
import {fileURLToPath} from 'node:url';
import {until} from '../support/until.ts';
import {Scratch, triggers, writeUrl} from './a-cloud.ts';

const program = fileURLToPath(new URL('./fixtures/cloud-process.ts', import.meta.url));
const nodes = '/v2/projects/gleaner-local/locations/us-central1-a/nodes';

type Cloud = {url: string; token: string; dir: string};

describe('The jobs of a VM, on a cloud that runs as root,', () => {
  const scratch = new Scratch();
  const children: ChildProcess[] = [];
  before(function () {
    if (process.getuid?.() !== 0) this.skip();
  });
  afterEach(async () => {
    for (const child of children.splice(0)) child.kill('SIGKILL');
    await scratch.end();
  });

  // A session of its own and another user, as the agent starts a job. It forks for ever and ignores signals.
  const job = `#!/bin/bash
echo uid $GLEANER_JOB_UID
as_user=(setpriv --reuid $GLEANER_JOB_UID --regid $GLEANER_JOB_UID --clear-groups)
setsid "\${as_user[@]}" bash -c 'trap "" TERM HUP INT; while :; do sleep 0.3 & wait; done' &
sleep 1000`;

  /** Boots a VM with a job, and returns the user of the job. */
  const started = async (cloud: Cloud): Promise<number> => {
    const answer = await fetch(`${writeUrl(cloud)}${nodes}?nodeId=vm`, {
      method: 'POST',
      body: JSON.stringify({
        ...{acceleratorType: 'v5litepod-1', runtimeVersion: 'v2-alpha-tpuv5-lite'},
        metadata: {'startup-script': job},
      }),
    });
    assert.equal(answer.status, 200, await answer.text());
    const file = join(cloud.dir, 'logs', 'vm-1.log');
    const [, uid] = await until('the VM says the user of its jobs', () =>
      existsSync(file) ? (/^uid (\d+)$/m.exec(readFileSync(file, 'utf8')) ?? undefined) : undefined,
    );
    await until('the job runs', () => processesOf(Number(uid)).length > 0);
    return Number(uid);
  };

  /** Living processes of a user. */
  const processesOf = (uid: number): string[] =>
    readdirSync('/proc').filter(entry => {
      try {
        const status = readFileSync(`/proc/${entry}/status`, 'utf8');
        return new RegExp(`^Uid:\\s+${uid}\\b`, 'm').test(status) && !/^State:\s+Z/m.test(status);
      } catch {
        return false;
      }
    });

  it('end with the VM at a preemption', async () => {
    const cloud = await scratch.cloud();
    const uid = await started(cloud);
    await cloud.fault('preempt', 'vm');
    assert.deepEqual(processesOf(uid), []);
  });

  it('have a user that no VM of another cloud has', async () => {
    const [one, other] = [await scratch.cloud(), await scratch.cloud()];
    const [uid, unlike] = [await started(one), await started(other)];
    assert.notEqual(uid, unlike);
    await one.close();
    assert.deepEqual(processesOf(uid), []);
    assert.ok(processesOf(unlike).length > 0);
  });

  it('end with a cloud that is killed', async () => {
    const dir = scratch.dir();
    const options = {dir, port: 0, triggers, create_ms: 5, tick_interval_ms: 3_600_000};
    const child = spawn(process.execPath, [program, JSON.stringify(options)], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    children.push(child);
    const [line] = (await once(createInterface({input: child.stdout}), 'line')) as [string];
    const uid = await started({...(JSON.parse(line) as {url: string; token: string}), dir});
    child.kill('SIGKILL');
    await until('no process of the user is left', () => processesOf(uid).length === 0);
  });
});
