import assert from 'node:assert/strict';
import {type ChildProcess, spawn} from 'node:child_process';
import {createHash} from 'node:crypto';
import {once} from 'node:events';
import {readdirSync, readFileSync} from 'node:fs';
import {join} from 'node:path';
import {createInterface} from 'node:readline';
import {fileURLToPath} from 'node:url';
import type {LocalCloud} from '../../emulator/cloud.ts';
import {functionsModule, readLines, Scratch, tokenUrl, triggers} from '../support/machine/a-cloud.ts';
import {until} from '../support/machine/until.ts';

const program = fileURLToPath(new URL('./fixtures/cloud-process.ts', import.meta.url));
const rounds = Number(process.env.GLEANER_CRASHES ?? 2);

/** Bytes of an object, which follow from its name. A test detects a truncated object. */
function bytesOf(name: string): Buffer<ArrayBuffer> {
  const seed = createHash('sha256').update(name).digest();
  return Buffer.concat(Array.from({length: 40 + (seed[0] ?? 0) * 20}, () => seed));
}

/** Creates a VM that prints the ids of its processes, and ignores TERM and HUP. */
async function createVm(url: string): Promise<void> {
  const script = '#!/bin/bash\ntrap "" TERM HUP\nsleep 1000 & echo "pids $$ $!"; wait';
  await fetch(`${url}/v2/projects/gleaner-local/locations/us-central1-a/nodes?nodeId=vm`, {
    method: 'POST',
    body: JSON.stringify({
      ...{acceleratorType: 'v5litepod-1', runtimeVersion: 'v2-alpha-tpuv5-lite'},
      metadata: {'startup-script': script},
    }),
  });
}

/** All objects of the bucket, by name. */
async function listObjects(url: string): Promise<Map<string, {size: string; generation: string}>> {
  const listed = new Map<string, {size: string; generation: string}>();
  for (let token = ''; ; ) {
    const page = (await (await fetch(`${url}/storage/v1/b/gleaner-local/o?pageToken=${token}`)).json()) as {
      items: {name: string; size: string; generation: string}[];
      nextPageToken?: string;
    };
    for (const item of page.items) listed.set(item.name, item);
    if (!page.nextPageToken) break;
    token = page.nextPageToken;
  }
  return listed;
}

describe('A local cloud after kill -9', () => {
  const scratch = new Scratch();
  const children: ChildProcess[] = [];
  afterEach(async () => {
    for (const child of children.splice(0)) child.kill('SIGKILL');
    await scratch.end();
  });

  const aCloudProcess = async (dir: string): Promise<{child: ChildProcess; url: string}> => {
    const options = {
      ...{dir, port: 0, triggers, create_ms: 5, tick_interval_ms: 20},
      function_host: {module: functionsModule, env: {SEEN: join(dir, 'seen.jsonl')}},
    };
    const child = spawn(process.execPath, [program, JSON.stringify(options)], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    children.push(child);
    const [line] = (await once(createInterface({input: child.stdout}), 'line')) as [string];
    return {child, url: tokenUrl(JSON.parse(line) as LocalCloud)};
  };

  /** Uploads objects in two ways until the cloud is gone, and collects the acknowledged names. */
  const keepUploading = async (url: string, prefix: string, acknowledged: string[]): Promise<void> => {
    const o = `${url}/upload/storage/v1/b/gleaner-local/o`;
    for (let n = 0; ; n++) {
      const name = `${prefix}-${n}`;
      const body = bytesOf(name);
      try {
        let answer: Response;
        if (n % 3 === 0) {
          const begun = await fetch(`${o}?uploadType=resumable&name=${name}`, {method: 'POST'});
          const location = begun.headers.get('location') ?? '';
          const half = body.subarray(0, 500);
          const headers = {'content-range': `bytes 0-499/${body.length}`};
          await fetch(location, {method: 'PUT', body: half, headers, redirect: 'manual'});
          const range = `bytes 500-${body.length - 1}/${body.length}`;
          answer = await fetch(location, {
            method: 'PUT',
            body: body.subarray(500),
            headers: {'content-range': range},
          });
        } else {
          answer = await fetch(`${o}?uploadType=media&name=${name}&ifGenerationMatch=0`, {
            method: 'POST',
            body,
          });
        }
        if (answer.status === 200 && (await answer.json())) acknowledged.push(name);
      } catch {
        return;
      }
    }
  };

  const keepPublishing = async (url: string, acknowledged: string[]): Promise<void> => {
    const body = JSON.stringify({messages: [{data: 'eA=='}]});
    for (;;) {
      try {
        const answer = await fetch(`${url}/v1/projects/gleaner-local/topics/control:publish`, {
          method: 'POST',
          body,
        });
        acknowledged.push(...((await answer.json()) as {messageIds: string[]}).messageIds);
      } catch {
        return;
      }
    }
  };

  const alive = (pids: number[]) =>
    pids.filter(pid => {
      try {
        return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
      } catch {
        return false;
      }
    });

  it('has every acknowledged object whole, has no VM process, and delivers every pending event', async () => {
    const dir = scratch.dir();
    const objects: string[] = [];
    const messages: string[] = [];
    for (let round = 0; round < rounds; round++) {
      const {child, url} = await aCloudProcess(dir);
      if (round === 0) await createVm(url);
      const work = [
        ...[1, 2, 3].map(n => keepUploading(url, `datasets/round${round}-${n}`, objects)),
        keepPublishing(url, messages),
      ];
      const log = join(dir, 'logs', `vm-${round + 1}.log`);
      const booted = await until(`the VM booted in round ${round}`, () => {
        const found = readdirSync(join(dir, 'logs')).includes(`vm-${round + 1}.log`);
        return found ? (/pids (\d+) (\d+)/.exec(readFileSync(log, 'utf8')) ?? undefined) : undefined;
      });
      const pids = booted.slice(1).map(Number);
      assert.equal(alive(pids).length, 2);
      // Kill during the work, after a different number of objects in each round.
      const [objects_then, messages_then] = [objects.length, messages.length];
      await until('objects and messages were acknowledged', () => {
        return objects.length >= objects_then + 2 + round && messages.length > messages_then;
      });
      child.kill('SIGKILL');
      await once(child, 'exit');
      await Promise.all(work);
      await until('the processes of the VM ended', () => alive(pids).length === 0);
    }

    const {url} = await aCloudProcess(dir);
    const listed = await listObjects(url);
    assert.deepEqual(
      objects.filter(name => !listed.has(name)),
      [],
      'lost objects that were acknowledged',
    );
    for (const name of listed.keys()) {
      const answer = await fetch(`${url}/gleaner-local/${name}`);
      assert.ok(Buffer.from(await answer.arrayBuffer()).equals(bytesOf(name)), `${name} is truncated`);
    }
    assert.deepEqual(
      readdirSync(join(dir, 'blobs')).toSorted(),
      [...listed.values()].map(({generation}) => generation).toSorted(),
      'blobs without an object, or objects without a blob',
    );
    await until('every event was delivered', async () => {
      const {deliveries_pending} = (await (await fetch(`${url}/_local/state`)).json()) as {
        deliveries_pending: number;
      };
      return deliveries_pending === 0;
    });
    const seen = readLines(join(dir, 'seen.jsonl'));
    const heard = new Set(
      seen.map(event =>
        event.function === 'on-object' ? event.data.message.attributes.objectGeneration : event.id,
      ),
    );
    assert.deepEqual(
      [...listed.values()].filter(({generation}) => !heard.has(generation)),
      [],
      'objects whose event never arrived',
    );
    assert.deepEqual(
      messages.filter(id => !heard.has(id)),
      [],
      'messages that never arrived',
    );
  });

  it('leaves no function host', async () => {
    const dir = scratch.dir();
    const {child, url} = await aCloudProcess(dir);
    const body = JSON.stringify({messages: [{data: 'eA=='}]});
    await fetch(`${url}/v1/projects/gleaner-local/topics/control:publish`, {method: 'POST', body});
    const [event] = await until('the function ran', () => {
      const lines = readLines(join(dir, 'seen.jsonl'));
      return lines.length > 0 ? lines : undefined;
    });
    const pid = event?.pid ?? 0;
    assert.deepEqual(alive([pid]), [pid]);
    child.kill('SIGKILL');
    await until('the function host ended', () => alive([pid]).length === 0);
  });

  it('continues a resumable upload from its stored bytes', async () => {
    const dir = scratch.dir();
    const first = await aCloudProcess(dir);
    const o = `${first.url}/upload/storage/v1/b/gleaner-local/o`;
    const metadata = JSON.stringify({metadata: {shard: '1'}});
    const begun = await fetch(`${o}?uploadType=resumable&name=big&ifGenerationMatch=0`, {
      method: 'POST',
      body: metadata,
    });
    const location = begun.headers.get('location') ?? '';
    const bytes = bytesOf('big');
    const half = {'content-range': `bytes 0-999/${bytes.length}`};
    await fetch(location, {method: 'PUT', body: bytes.subarray(0, 1000), headers: half, redirect: 'manual'});
    first.child.kill('SIGKILL');
    await once(first.child, 'exit');

    const second = await aCloudProcess(dir);
    assert.equal(second.url, first.url, 'clients use the old address');
    const asked = await fetch(location, {
      method: 'PUT',
      headers: {'content-range': `bytes */${bytes.length}`},
      redirect: 'manual',
    });
    assert.deepEqual([asked.status, asked.headers.get('range')], [308, 'bytes=0-999']);
    const rest = {'content-range': `bytes 1000-${bytes.length - 1}/${bytes.length}`};
    const done = await fetch(location, {method: 'PUT', body: bytes.subarray(1000), headers: rest});
    const resource = (await done.json()) as {md5Hash: string; metadata: object};
    assert.equal(resource.md5Hash, createHash('md5').update(bytes).digest('base64'));
    assert.deepEqual(resource.metadata, {shard: '1'});
  });
});
