import {createGunzip} from 'node:zlib';
import {ApiError} from '../http/errors.ts';
import type {Reply, Request} from '../http/http.ts';
import type {JsonObject} from '../http/json.ts';
import {chunksOf, optionalString, parseJson, readBytes} from '../http/request-body.ts';
import type {Blobs} from './blobs.ts';
import {
  type ExpectedChecksums,
  expectedInHeaders,
  expectedInResource,
  requireChecksums,
} from './checksum-headers.ts';
import {conditionsFrom, requireConditions} from './conditions.ts';
import {readRelated} from './multipart.ts';
import type {ObjectTable} from './objects.ts';
import {checkObjectName, type Fields, fieldsOf, resourceOf} from './resource.ts';
import type {ResumableUploads} from './resumable.ts';
import type {RequireRight} from './rights.ts';

export type Upload = {
  objects: ObjectTable;
  blobs: Blobs;
  resumable: ResumableUploads;
  requireRight: RequireRight;
};

/** `POST …/o?uploadType=`: an upload in one request, or the start of a resumable upload. */
export async function insert(upload: Upload, request: Request): Promise<Reply> {
  const type = request.query.get('uploadType');
  if (request.query.has('upload_id')) return upload.resumable.put(request);
  switch (type) {
    case 'media':
      return insertMedia(upload, request);
    case 'multipart':
      return insertMultipart(upload, request);
    case 'resumable':
      return insertResumable(upload, request);
    default:
      throw new ApiError(400, `Invalid value for uploadType: "${type}"; it is media, multipart or resumable`);
  }
}

async function insertMedia(upload: Upload, request: Request): Promise<Reply> {
  const {query, headers} = request;
  const fields: Fields = fieldsOf({
    contentType: headers['content-type'],
    contentEncoding: query.get('contentEncoding') ?? undefined,
  });
  return store(upload, request, query.get('name') ?? '', fields, {}, decompressed(request));
}

async function insertMultipart(upload: Upload, request: Request): Promise<Reply> {
  const body = decompressed(request);
  const {metadata, mediaHeaders, media} = await readRelated(body, request.headers['content-type'] ?? '');
  const resource = parseJson(metadata === '' ? '{}' : metadata, 'the first part of the upload');
  const fields = fieldsOf(resource);
  if (!fields.contentType && mediaHeaders['content-type']) fields.contentType = mediaHeaders['content-type'];
  return store(upload, request, nameOf(request, resource), fields, expectedInResource(resource), media);
}

async function insertResumable(upload: Upload, request: Request): Promise<Reply> {
  const {query, headers} = request;
  const bytes = await readBytes(request.body, 1 << 20, 'the description of the upload');
  const resource =
    bytes.length === 0 ? {} : parseJson(bytes.toString('utf8'), 'the description of the upload');
  const bucket = request.params.bucket ?? '';
  const name = nameOf(request, resource);
  const fields = fieldsOf(resource);
  const type = headers['x-upload-content-type'];
  if (!fields.contentType && typeof type === 'string') fields.contentType = type;
  const conditions = conditionsFrom(query);
  checkObjectName(name);
  upload.objects.bucket(bucket);
  requireRights(upload, request, bucket, name);
  requireConditions(conditions, upload.objects.find(bucket, name));
  const length = headers['x-upload-content-length'];
  const total_bytes = typeof length === 'string' && /^\d+$/.test(length) ? Number(length) : null;
  const expected = expectedInResource(resource);
  const id = upload.resumable.begin({bucket, name, fields, conditions, expected, total_bytes});
  const location = `${request.origin}/upload/storage/v1/b/${encodeURIComponent(bucket)}/o?uploadType=resumable&name=${encodeURIComponent(name)}&upload_id=${id}`;
  return {headers: {location, 'x-guploader-uploadid': id}, body: ''};
}

/** A new object needs the right to create; an overwrite needs the right to delete too. */
export function requireRights(
  {objects, requireRight}: Pick<Upload, 'objects' | 'requireRight'>,
  request: Request,
  bucket: string,
  name: string,
): void {
  requireRight(request, 'create', bucket, name);
  const isCreate = request.query.get('ifGenerationMatch') === '0';
  if (!isCreate && objects.find(bucket, name)) requireRight(request, 'delete', bucket, name);
}

async function store(
  upload: Upload,
  request: Request,
  name: string,
  fields: Fields,
  expected: ExpectedChecksums,
  bytes: AsyncIterable<Buffer>,
): Promise<Reply> {
  const {objects, blobs} = upload;
  const bucket = request.params.bucket ?? '';
  const conditions = conditionsFrom(request.query);
  checkObjectName(name);
  objects.bucket(bucket);
  requireRights(upload, request, bucket, name);
  // Checked before the bytes arrive, and again in the transaction of the row.
  requireConditions(conditions, objects.find(bucket, name));
  const draft = await blobs.draft(bytes);
  try {
    requireChecksums(draft, {...expected, ...expectedInHeaders(request)});
  } catch (error) {
    await blobs.discard(draft.file);
    throw error;
  }
  const object = await objects.create(bucket, name, draft, fields, conditions);
  return {json: resourceOf(object, request.origin)};
}

function nameOf(request: Request, resource: JsonObject): string {
  return request.query.get('name') ?? optionalString(resource.name, 'name') ?? '';
}

/** Request body, decompressed where the request has `content-encoding: gzip`. */
async function* decompressed(request: Request): AsyncGenerator<Buffer> {
  if (request.headers['content-encoding'] !== 'gzip') {
    yield* chunksOf(request.body);
    return;
  }
  const gunzip = createGunzip();
  request.body.once('error', error => gunzip.destroy(error));
  try {
    yield* request.body.pipe(gunzip);
  } catch (cause) {
    if (request.signal.aborted) throw cause;
    throw new ApiError(400, `Failed to decompress the upload: ${(cause as Error).message}`, {cause});
  }
}
