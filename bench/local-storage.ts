/**
 * Measures the local Cloud Storage against plain files: `npm run bench`. Uploads bytes over HTTP and writes the same bytes to
 * files with fsync, in alternating rounds. Prints MB/s of both and their ratio. The uploads use plain HTTP, because the CRC-32C of
 * Google's Node client limits an upload to about 150 MB/s.
 */
import {randomBytes} from 'node:crypto';
import {mkdtempSync, rmSync} from 'node:fs';
import {open} from 'node:fs/promises';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {startLocalCloud} from '../emulator/cloud.ts';
import {urlWithToken} from '../emulator/http/guard.ts';

const SIZE_MB = 8;
const OBJECTS = 12;
const ROUNDS = 5;

const dir = mkdtempSync(join(tmpdir(), 'gleaner-bench-'));
const cloud = await startLocalCloud({dir, port: 0, storage_only: true});
const bytes = randomBytes(SIZE_MB * 1e6);

async function seconds(work: (index: number) => Promise<unknown>): Promise<number> {
  const start = performance.now();
  for (let index = 0; index < OBJECTS; index++) await work(index);
  return (performance.now() - start) / 1000;
}

async function upload(name: string): Promise<void> {
  const query = `uploadType=media&ifGenerationMatch=0&name=${encodeURIComponent(name)}`;
  const response = await fetch(
    `${urlWithToken(cloud.url, cloud.token)}/upload/storage/v1/b/${cloud.bucket}/o?${query}`,
    {
      method: 'POST',
      body: bytes,
    },
  );
  if (!response.ok) throw new Error(`Failed to upload ${name}: ${await response.text()}`);
  await response.arrayBuffer();
}

async function plainFile(name: string): Promise<void> {
  const file = await open(join(dir, name), 'w');
  await file.writeFile(bytes);
  await file.sync();
  await file.close();
}

const median = (values: number[]) =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN;

try {
  const ratios: number[] = [];
  const speeds: {cloud: number[]; files: number[]} = {cloud: [], files: []};
  for (let round = 0; round < ROUNDS; round++) {
    const stored = await seconds(index => upload(`bench/${round}/${index}`));
    const written = await seconds(index => plainFile(`plain-${round}-${index}`));
    speeds.cloud.push((SIZE_MB * OBJECTS) / stored);
    speeds.files.push((SIZE_MB * OBJECTS) / written);
    ratios.push(written / stored);
  }
  console.log(`local Cloud Storage  ${median(speeds.cloud).toFixed(0)} MB/s (median of ${ROUNDS})`);
  console.log(`plain files, fsync   ${median(speeds.files).toFixed(0)} MB/s`);
  console.log(
    `ratio                ${median(ratios).toFixed(2)} (${Math.min(...ratios).toFixed(2)} to ${Math.max(...ratios).toFixed(2)})`,
  );
} finally {
  await cloud.close();
  rmSync(dir, {recursive: true, force: true});
}
