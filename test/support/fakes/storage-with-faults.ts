/**
 * A local Cloud Storage behind the fault proxy, for tests in other languages. The first line on stdout has its addresses.
 * A line `{"operation", "instructions"}` on stdin breaks requests, and a line `{}` asks for `{"left", "seen"}`. It ends with its stdin.
 */
import {mkdtempSync, rmSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {createInterface} from 'node:readline';
import {startLocalCloud} from '../../../emulator/cloud.ts';
import {urlWithToken} from '../../../emulator/http/guard.ts';
import {startFaultProxy} from './fault-proxy.ts';
import '../own-state.ts';

const print = (value: object) => process.stdout.write(`${JSON.stringify(value)}\n`);

const dir = mkdtempSync(join(tmpdir(), 'gleaner-faults-'));
const cloud = await startLocalCloud({dir, port: 0, storage_only: true});
const proxy = await startFaultProxy(cloud.url);
print({
  url: urlWithToken(proxy.url, cloud.token),
  direct_url: urlWithToken(cloud.url, cloud.token),
  bucket: cloud.bucket,
});
for await (const line of createInterface({input: process.stdin})) {
  const {operation, instructions} = JSON.parse(line);
  if (operation) proxy.breakNext(operation, instructions);
  print({left: proxy.left(), seen: proxy.seen()});
}
await proxy.close();
await cloud.close();
rmSync(dir, {recursive: true, force: true});
