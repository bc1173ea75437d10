/**
 * Starts the pages in a container that has Node alone: fetches the zip of the functions, checks its digest, unpacks it, and imports the pages.
 * `dashboard.tf` gives Node the text of this file.
 */
import {hash} from 'node:crypto';
import {mkdirSync, mkdtempSync, writeFileSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {dirname, join} from 'node:path';
import {pathToFileURL} from 'node:url';
import {inflateRawSync} from 'node:zlib';

const {GLEANER_BUCKET: bucket = '', GLEANER_FUNCTIONS: sha256 = ''} = process.env;
const {GCE_METADATA_HOST: metadata = 'metadata.google.internal'} = process.env;
const {GLEANER_STORAGE_ENDPOINT: storage = 'https://storage.googleapis.com'} = process.env;

async function get(address: string, headers: Record<string, string>): Promise<Buffer> {
  const response = await fetch(address, {headers});
  const body = Buffer.from(await response.arrayBuffer());
  if (!response.ok) throw new Error(`${address} answers ${response.status}: ${body}`);
  return body;
}

async function fetchZip(): Promise<Buffer> {
  const account = `http://${metadata}/computeMetadata/v1/instance/service-accounts/default`;
  const token = JSON.parse(String(await get(`${account}/token`, {'metadata-flavor': 'Google'})));
  const object = encodeURIComponent(`functions/${sha256}.zip`);
  const authorization = `Bearer ${token.access_token}`;
  const zip = await get(`${storage}/storage/v1/b/${bucket}/o/${object}?alt=media`, {authorization});
  if (hash('sha256', zip) !== sha256)
    throw new Error(`gs://${bucket}/functions/${sha256}.zip has other bytes: run \`gleaner deploy\``);
  return zip;
}

/** Reads the directory at the end of a zip, and writes each file. */
function unpack(zip: Buffer, folder: string): void {
  const end = zip.lastIndexOf('PK\x05\x06', undefined, 'latin1');
  let entry = zip.readUInt32LE(end + 16);
  for (let left = zip.readUInt16LE(end + 10); left > 0; left--) {
    const [name_bytes, extra_bytes, comment_bytes] = [28, 30, 32].map(at => zip.readUInt16LE(entry + at));
    const name = zip.toString('utf8', entry + 46, entry + 46 + (name_bytes ?? 0));
    const local = zip.readUInt32LE(entry + 42);
    const start = local + 30 + zip.readUInt16LE(local + 26) + zip.readUInt16LE(local + 28);
    const stored = zip.subarray(start, start + zip.readUInt32LE(entry + 20));
    const isPlain = zip.readUInt16LE(entry + 10) === 0;
    mkdirSync(dirname(join(folder, name)), {recursive: true});
    writeFileSync(join(folder, name), isPlain ? stored : inflateRawSync(stored));
    entry += 46 + (name_bytes ?? 0) + (extra_bytes ?? 0) + (comment_bytes ?? 0);
  }
}

const folder = mkdtempSync(join(tmpdir(), 'gleaner-'));
unpack(await fetchZip(), folder);
await import(pathToFileURL(join(folder, 'dashboard/main.js')).href);
