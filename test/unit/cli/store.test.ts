import assert from 'node:assert/strict';
import {chmodSync, mkdtempSync, rmSync, writeFileSync} from 'node:fs';
import {createServer, type Server} from 'node:http';
import type {AddressInfo} from 'node:net';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {rebuild} from '../../../cli/rebuild.ts';
import {estimate} from '../../../cli/run/estimate/estimate.ts';
import {status} from '../../../cli/run/status.ts';

const OTHER_USER = 65_534;
const isRoot = process.geteuid?.() === 0;

describe('The store file of another user', () => {
  const env = {...process.env};
  let dir: string;
  let server: Server;
  let port: number;
  before(async () => {
    dir = mkdtempSync(join(tmpdir(), 'gleaner-store-'));
    writeFileSync(join(dir, 'state.db'), '');
    const info = {dir, store_file: join(dir, 'state.db'), bucket: 'b', project: 'p'};
    server = createServer((_, response) => response.end(JSON.stringify(info)));
    await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
    ({port} = server.address() as AddressInfo);
    chmodSync(dir, 0);
    if (isRoot) process.seteuid?.(OTHER_USER);
  });
  after(() => {
    if (isRoot) process.seteuid?.(0);
    chmodSync(dir, 0o700);
    rmSync(dir, {recursive: true});
    server.close();
    for (const name of Object.keys(process.env)) delete process.env[name];
    Object.assign(process.env, env);
  });

  const sample = {accelerator: 'v5litepod-1', zone: 'us-central1-a', workers: 1, sample_bytes: 100};
  const commands = {
    status: () => status(undefined, {port}),
    rebuild: () => rebuild(undefined, {port, dry_run: true}),
    estimate: () => estimate('my-run', {...sample, port}),
  };
  for (const [name, command] of Object.entries(commands))
    it(`is named by gleaner ${name} in one sentence without a stack`, async () => {
      await assert.rejects(command, {
        name: 'CliError',
        message:
          /^Failed to open the store .*\/state\.db: .*; it belongs to another user: run this command as/,
      });
    });
});
