import {pipeline} from 'node:stream';
import {createGunzip} from 'node:zlib';
import {ApiError} from '../http/errors.ts';
import type {Reply, Request} from '../http/http.ts';
import {readFrom} from './blobs.ts';
import {brokenCondition, conditionsFrom, requireConditions, wholeNumber} from './conditions.ts';
import type {ObjectTable} from './objects.ts';
import {etagOf, type StoredObject} from './resource.ts';

/** A shorter content costs less without a stream. */
const STREAMED_BYTES = 1 << 18;

/** Object of a read request, or the answer 304 if the client has this generation. */
export function readable(objects: ObjectTable, request: Request): StoredObject | Reply {
  const {bucket = '', object = ''} = request.params;
  const found = objects.get(bucket, object, wholeNumber(request.query, 'generation'));
  const {ifGenerationNotMatch, ifMetagenerationNotMatch, ...matches} = conditionsFrom(request.query);
  requireConditions(matches, found);
  const nots = {ifGenerationNotMatch, ifMetagenerationNotMatch};
  return brokenCondition(nots, found) ? {status: 304, body: ''} : found;
}

export function isObjectFound(found: StoredObject | Reply): found is StoredObject {
  return 'generation' in found;
}

export async function download(objects: ObjectTable, request: Request): Promise<Reply> {
  const found = readable(objects, request);
  if (!isObjectFound(found)) return found;
  const {fields} = found;
  const handle = await objects.open(found).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOENT') throw error;
  });
  if (!handle) {
    const now = readable(objects, request);
    // An empty body makes the client's checksum fail at once, whereas clients would retry after an error for minutes.
    return isObjectFound(now) && now.generation === found.generation
      ? {headers: headersOf(found, 0), body: ''}
      : download(objects, request);
  }
  try {
    // The headers give the length of a truncated blob, because a client would wait for missing bytes.
    const {size} = await handle.stat();
    const headers = headersOf(found, size);
    // Cloud Storage decompresses a gzip object for a client without gzip, and then ignores ranges.
    const accepts = String(request.headers['accept-encoding'] ?? '');
    if (fields.contentEncoding === 'gzip' && !/gzip|\*/.test(accepts)) {
      const {'content-encoding': _gone, ...plain} = headers;
      const zipped = readFrom(handle, 0, Math.max(0, size - 1));
      const gunzip = createGunzip();
      return {
        headers: {...plain, 'x-guploader-response-body-transformations': 'gunzipped'},
        body: pipeline(zipped, gunzip, () => {}),
      };
    }
    const range = rangeOf(request.headers.range, size);
    const [start, end] = range ?? [0, size - 1];
    const length = String(end - start + 1);
    const status = range ? 206 : 200;
    const content_range = range ? {'content-range': `bytes ${start}-${end}/${size}`} : {};
    const reply = {status, headers: {...headers, ...content_range, 'content-length': length}};
    if (length === '0' || request.method === 'HEAD') {
      await handle.close();
      return {...reply, body: ''};
    }
    if (end - start >= STREAMED_BYTES) return {...reply, body: readFrom(handle, start, end)};
    const {buffer, bytesRead} = await handle.read(Buffer.alloc(end - start + 1), {position: start});
    await handle.close();
    return {...reply, body: buffer.subarray(0, bytesRead)};
  } catch (error) {
    await handle.close();
    throw error;
  }
}

/** Range of the request. Undefined means the whole object: no range, several ranges, or a unit other than bytes. */
function rangeOf(header: string | undefined, size: number): [start: number, end: number] | undefined {
  const match = /^bytes=(\d*)-(\d*)$/.exec(header?.trim() ?? '');
  if (!match || (match[1] === '' && match[2] === '')) return undefined;
  const [, from, to] = match;
  const start = from === '' ? Math.max(0, size - Number(to)) : Number(from);
  const end = from === '' || to === '' ? size - 1 : Math.min(Number(to), size - 1);
  if (start >= size || end < start) {
    throw new ApiError(416, `Requested range not satisfiable: ${header} of ${size} bytes`, {
      headers: {'content-range': `bytes */${size}`},
    });
  }
  return [start, end];
}

function headersOf(object: StoredObject, size: number): Record<string, string | string[]> {
  const {fields} = object;
  const headers: Record<string, string | string[]> = {
    'content-type': fields.contentType ?? 'application/octet-stream',
    'accept-ranges': 'bytes',
    etag: `"${etagOf(object)}"`,
    'last-modified': new Date(object.updated_at).toUTCString(),
    'x-goog-generation': String(object.generation),
    'x-goog-metageneration': String(object.metageneration),
    'x-goog-hash': `crc32c=${object.crc32c}${object.md5 ? `,md5=${object.md5}` : ''}`,
    'x-goog-stored-content-length': String(size),
    'x-goog-stored-content-encoding': fields.contentEncoding ?? 'identity',
    'x-goog-storage-class': fields.storageClass ?? 'STANDARD',
    'cache-control': fields.cacheControl ?? 'no-cache, no-store, max-age=0, must-revalidate',
  };
  if (fields.contentEncoding) headers['content-encoding'] = fields.contentEncoding;
  if (fields.contentDisposition) headers['content-disposition'] = fields.contentDisposition;
  if (fields.contentLanguage) headers['content-language'] = fields.contentLanguage;
  for (const [key, value] of Object.entries(fields.metadata ?? {})) {
    // Metadata that a header cannot hold is visible only in the JSON resource.
    if (/^[A-Za-z0-9_.-]+$/.test(key) && /^[\t\x20-\x7e]*$/.test(value))
      headers[`x-goog-meta-${key}`] = value;
  }
  return headers;
}
