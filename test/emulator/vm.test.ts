import assert from 'node:assert/strict';
import {existsSync, readdirSync, readFileSync} from 'node:fs';
import {join} from 'node:path';
import type {LocalCloud} from '../../emulator/cloud.ts';
import {tokenAccount} from '../../emulator/http/access-tokens.ts';
import {cloudState, Scratch, tokenUrl} from '../support/machine/a-cloud.ts';
import {until} from '../support/machine/until.ts';

const nodes = '/v2/projects/gleaner-local/locations/us-central1-a/nodes';

describe('A VM of a TPU', () => {
  const scratch = new Scratch(afterEach);

  const boot = async (cloud: LocalCloud, script: string, metadata: Record<string, string> = {}) => {
    const answer = await fetch(`${tokenUrl(cloud)}${nodes}?nodeId=vm`, {
      method: 'POST',
      body: JSON.stringify({
        acceleratorType: 'v5litepod-1',
        runtimeVersion: 'v2-alpha-tpuv5-lite',
        metadata: {'startup-script': script, ...metadata},
      }),
    });
    assert.equal(answer.status, 200, await answer.text());
  };
  const printed = (cloud: LocalCloud, boot_number = 1) => {
    const file = join(cloud.dir, 'logs', `vm-${boot_number}.log`);
    return existsSync(file) ? readFileSync(file, 'utf8') : '';
  };
  const printedLine = (cloud: LocalCloud, mark: RegExp) =>
    until(`the VM prints ${mark}`, () => mark.exec(printed(cloud)) ?? undefined);
  const isAlive = (pid: number) => {
    try {
      process.kill(pid, 0);
      // A zombie counts as gone.
      return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
    } catch {
      return false;
    }
  };
  const pidsIn = (text: string) => [...text.matchAll(/^pid (\d+)\n/gm)].map(match => Number(match[1]));
  const family = `#!/bin/bash
trap '' TERM
echo pid $$
bash -c 'trap "" TERM HUP INT; echo pid $$; sleep 1000 & echo pid $!; wait; wait' &
nohup sleep 1000 >/dev/null 2>&1 &
echo pid $!
wait`;
  const familyOf = (cloud: LocalCloud) =>
    until('four processes printed their pids', () => {
      const pids = pidsIn(printed(cloud));
      return pids.length === 4 ? pids : undefined;
    });

  it('has its own environment, and inherits only the settings for network and packages', async () => {
    process.env.SECRET_OF_THE_USER = 'hush';
    process.env.PIP_TEST_ONLY = 'passed';
    try {
      const cloud = await scratch.cloud({vm_env: {EXTRA: 'given'}});
      await boot(cloud, '#!/bin/bash\nenv | sort; pwd; echo done');
      const text = (await printedLine(cloud, /.*done/s))[0];
      const env = Object.fromEntries(text.split('\n').map(line => line.split(/=(.*)/s).slice(0, 2)));
      const [id = ''] = readdirSync(join(cloud.dir, 'vms'));
      const disk = join(cloud.dir, 'vms', id);
      assert.equal(env.GLEANER_HOME, disk);
      assert.equal(env.HOME, disk);
      assert.equal(env.STORAGE_EMULATOR_HOST, cloud.url);
      assert.match(env.GCE_METADATA_HOST ?? '', /^127\.0\.0\.1:\d+\/[0-9a-f]{32}$/);
      assert.match(env.UV_CACHE_DIR ?? '', /gleaner\/uv$/);
      assert.deepEqual(
        [env.EXTRA, env.PIP_TEST_ONLY, env.SECRET_OF_THE_USER],
        ['given', 'passed', undefined],
      );
      assert.ok(text.includes(`\n${disk}\n`));
    } finally {
      delete process.env.SECRET_OF_THE_USER;
      delete process.env.PIP_TEST_ONLY;
    }
  });

  it('ends with every process at a preemption, also processes that ignore signals', async () => {
    const cloud = await scratch.cloud();
    await boot(cloud, family);
    const pids = await familyOf(cloud);
    assert.ok(pids.every(isAlive));
    await cloud.fault('preempt', 'vm');
    await until('every process ended', () => !pids.some(isAlive));
  });

  it('ends with every process at the close of the cloud', async () => {
    const cloud = await scratch.cloud();
    await boot(cloud, family);
    const pids = await familyOf(cloud);
    await cloud.close();
    await until('every process ended', () => !pids.some(isAlive));
  });

  it('stays READY after the end of its script, and keeps the background processes of the script', async () => {
    const cloud = await scratch.cloud();
    await boot(cloud, '#!/bin/bash\nsleep 1000 & echo pid $!; echo done; exit 3');
    const pids = pidsIn((await printedLine(cloud, /.*done/s))[0]);
    await until('the log shows the end of the script', () =>
      scratch.log.some(line => line === 'vm: the startup script ended (exit code 3)'),
    );
    assert.ok(pids.every(isAlive));
    const node = await (await fetch(`${tokenUrl(cloud)}${nodes}/vm`)).json();
    assert.equal((node as {state: string}).state, 'READY');
    await cloud.fault('dead', 'vm');
    await until('every process ended', () => !pids.some(isAlive));
  });

  it('is off after a kill from outside, and its node stays READY', async () => {
    const cloud = await scratch.cloud();
    await boot(cloud, family);
    const [leader = 0] = await familyOf(cloud);
    process.kill(-leader, 'SIGKILL');
    await until('the VM is off', async () => {
      const {tpus} = await cloudState<{
        tpus: {state: string; vms: {pid: number | null}[]}[];
      }>(cloud);
      return tpus[0]?.state === 'READY' && tpus[0].vms[0]?.pid === null;
    });
  });

  it('boots without a startup script', async () => {
    const cloud = await scratch.cloud();
    await boot(cloud, '');
    await until('the script ended', () =>
      scratch.log.some(line => line.startsWith('vm: the startup script ended')),
    );
  });

  it('runs its script with the interpreter in the first line', async () => {
    const cloud = await scratch.cloud();
    await boot(cloud, '#!/usr/bin/env python3\nprint("from python")');
    await printedLine(cloud, /from python/);
  });

  describe('has a metadata server that', () => {
    const serverOf = async (cloud: LocalCloud, metadata: Record<string, string> = {}) => {
      await boot(cloud, '#!/bin/bash\necho "server $GCE_METADATA_HOST"; sleep 1000', metadata);
      const host = (await printedLine(cloud, /server (\S+)/))[1];
      return (path: string, headers: Record<string, string> = {'metadata-flavor': 'Google'}) =>
        fetch(`http://${host}/computeMetadata/v1/${path}`, {headers, redirect: 'manual'});
    };

    it('has every value that the agent reads', async () => {
      const cloud = await scratch.cloud();
      const get = await serverOf(cloud, {
        'gleaner-worker': 'tpu-us-central1-a-0',
        'gleaner-incarnation': '3',
      });
      const text = async (path: string) => (await get(path)).text();
      assert.equal(await text('instance/attributes/gleaner-worker'), 'tpu-us-central1-a-0');
      assert.equal(await text('instance/attributes/gleaner-incarnation'), '3');
      assert.equal(await text('instance/attributes/agent-worker-number'), '0');
      assert.equal(await text('instance/attributes/accelerator-type'), 'v5litepod-1');
      assert.equal(await text('instance/preempted'), 'FALSE');
      assert.equal(await text('instance/name'), 'vm');
      assert.equal(await text('instance/zone'), 'projects/1/zones/us-central1-a');
      assert.equal(await text('instance/maintenance-event'), 'NONE');
      assert.equal(await text('project/project-id'), 'gleaner-local');
      assert.equal(await text('universe/universe-domain'), 'googleapis.com');
      const attributes = JSON.parse(await text('instance/attributes/?recursive=true&alt=json'));
      assert.equal(attributes['gleaner-worker'], 'tpu-us-central1-a-0');
      assert.ok((await text('instance/attributes/')).split('\n').includes('gleaner-incarnation'));
    });

    it("gives tokens in Google's formats", async () => {
      const cloud = await scratch.cloud();
      const get = await serverOf(cloud);
      const account = 'instance/service-accounts/default';
      const email = '1-compute@developer.gserviceaccount.com';
      assert.equal(await (await get(`${account}/email`)).text(), email);
      const token = (await (await get(`${account}/token`)).json()) as {
        access_token: string;
        token_type: string;
      };
      assert.equal(token.token_type, 'Bearer');
      assert.equal(tokenAccount(token.access_token, cloud.token)?.email, email);
      const claimsOf = async (query: string) => {
        const jwt = await (await get(`${account}/identity?audience=https%3A%2F%2Fapi${query}`)).text();
        return JSON.parse(Buffer.from(jwt.split('.')[1] ?? '', 'base64url').toString());
      };
      const payload = await claimsOf('&format=full');
      assert.deepEqual([payload.aud, payload.email, payload.email_verified], ['https://api', email, true]);
      assert.equal(payload.google.compute_engine.instance_name, 'vm');
      assert.match(payload.sub, /^1\d{20}$/, 'the number of the account, not of the VM');
      assert.equal(payload.azp, payload.sub);
      assert.deepEqual(Object.keys(await claimsOf('')).sort(), ['aud', 'azp', 'exp', 'iat', 'iss', 'sub']);
      const info = (await (await get(`${account}/?recursive=true`)).json()) as {
        email: string;
        scopes: string[];
      };
      assert.equal(info.email, email);
      assert.deepEqual(info.scopes, ['https://www.googleapis.com/auth/cloud-platform']);
    });

    it('answers 403 without its header, and 404 to an unknown path', async () => {
      const get = await serverOf(await scratch.cloud());
      assert.equal((await get('instance/name', {})).status, 403);
      assert.equal(
        (await get('instance/name', {'metadata-flavor': 'Google', 'x-forwarded-for': '1.2.3.4'})).status,
        403,
      );
      for (const path of [
        'instance/attributes/nothing',
        'instance/attributes/__proto__',
        'instance/attributes/constructor',
      ]) {
        const answer = await get(path);
        assert.equal(answer.status, 404, path);
        assert.equal(answer.headers.get('metadata-flavor'), 'Google');
      }
      assert.equal((await get('%ff')).status, 400);
      const folder = await get('instance/attributes');
      assert.deepEqual(
        [folder.status, folder.headers.get('location')?.replace(/^\/[0-9a-f]+/, '')],
        [301, '/computeMetadata/v1/instance/attributes/'],
      );
    });

    it('answers a waiting request at a change of preempted', async () => {
      const cloud = await scratch.cloud({preemption_notice_ms: 10_000});
      const script = `#!/bin/bash
trap '' TERM
url=http://$GCE_METADATA_HOST/computeMetadata/v1/instance/preempted
m() { curl -s -H Metadata-Flavor:Google "$url?$1"; echo " $1"; }
m 'wait_for_change=true&timeout_sec=1'
etag=$(curl -sI -H Metadata-Flavor:Google $url | tr -d '\r' | sed -n 's/^etag: //p')
echo waiting
m "wait_for_change=true&last_etag=$etag"
sleep 1000`;
      await boot(cloud, script);
      await printedLine(cloud, /^FALSE wait_for_change=true&timeout_sec=1\nwaiting/m);
      await cloud.fault('preempt-with-notice', 'vm');
      await printedLine(cloud, /^TRUE wait_for_change=true&last_etag=\w+/m);
    });
  });
});
