import {ApiError} from '../errors.ts';
import {isObject, type Json, type JsonObject} from '../json.ts';
import {optionalString, stringMap} from '../request-body.ts';

/** What a writer may say about an object, under the API's own names. */
export type Fields = {
  contentType?: string;
  contentEncoding?: string;
  contentDisposition?: string;
  contentLanguage?: string;
  cacheControl?: string;
  customTime?: string;
  storageClass?: string;
  metadata?: Record<string, string>;
};

export type StoredObject = {
  bucket: string;
  name: string;
  generation: number;
  metageneration: number;
  size_bytes: number;
  crc32c: string;
  /** Absent on composed objects, as in the real thing. */
  md5: string | null;
  component_count: number | null;
  fields: Fields;
  created_at: string;
  updated_at: string;
};

const textFields = [
  'contentType',
  'contentEncoding',
  'contentDisposition',
  'contentLanguage',
  'cacheControl',
  'customTime',
  'storageClass',
] as const;

/** The writable fields of a resource; the rest (acl, kind, id …) is read past, as a round trip of a resource sends it. */
export function fieldsOf(resource: JsonObject): Fields {
  const fields: Fields = {};
  for (const key of textFields) {
    const value = optionalString(resource[key], key);
    if (value !== undefined) fields[key] = headerSafe(value, key);
  }
  const metadata = stringMap(resource.metadata, 'metadata');
  if (metadata) fields.metadata = checkedMetadata(metadata);
  return fields;
}

/** A patch: absent leaves alone, null takes away, and metadata is merged key by key. */
export function patched(fields: Fields, patch: JsonObject): Fields {
  const result: Fields = {...fields};
  for (const key of textFields) {
    if (patch[key] === null) delete result[key];
    const value = optionalString(patch[key], key);
    if (value !== undefined) result[key] = headerSafe(value, key);
  }
  if (patch.metadata === null) delete result.metadata;
  else if (patch.metadata !== undefined) {
    if (!isObject(patch.metadata))
      throw new ApiError(400, 'Invalid value for metadata: it must be an object');
    const merged: JsonObject = {...result.metadata, ...patch.metadata};
    const kept = Object.entries(merged).filter(([, value]) => value !== null);
    result.metadata = checkedMetadata(stringMap(Object.fromEntries(kept), 'metadata') ?? {});
  }
  return result;
}

function headerSafe(value: string, field: string): string {
  if (!/^[\t\x20-\x7e\x80-\xff]*$/.test(value)) {
    throw new ApiError(
      400,
      `Invalid value for ${field}: it is sent as an HTTP header and holds a character that none may`,
    );
  }
  return value;
}

function checkedMetadata(metadata: Record<string, string>): Record<string, string> {
  const size = Object.entries(metadata).reduce(
    (sum, [key, value]) => sum + Buffer.byteLength(key + value),
    0,
  );
  if (size > 8192)
    throw new ApiError(400, `Invalid value for metadata: ${size} bytes, and 8192 is the limit`);
  return metadata;
}

export function checkObjectName(name: string): void {
  const bytes = Buffer.byteLength(name);
  const complaint =
    bytes === 0
      ? 'it is empty'
      : bytes > 1024
        ? `it is ${bytes} bytes long and 1024 is the limit`
        : /[\r\n]/.test(name)
          ? 'it holds a line break'
          : name === '.' || name === '..'
            ? 'it is "." or ".."'
            : name.startsWith('.well-known/acme-challenge/')
              ? 'it starts with .well-known/acme-challenge/'
              : !name.isWellFormed()
                ? 'it is not Unicode'
                : undefined;
  if (complaint)
    throw new ApiError(400, `Invalid object name ${JSON.stringify(name.slice(0, 80))}: ${complaint}`);
}

export function etagOf(object: StoredObject): string {
  return Buffer.from(`${object.generation}/${object.metageneration}`).toString('base64');
}

export function resourceOf(object: StoredObject, url: string): JsonObject {
  const {bucket, name, generation} = object;
  const path = `b/${encodeURIComponent(bucket)}/o/${encodeURIComponent(name)}`;
  const {metadata, ...fields} = object.fields;
  return {
    kind: 'storage#object',
    id: `${bucket}/${name}/${generation}`,
    selfLink: `${url}/storage/v1/${path}`,
    mediaLink: `${url}/download/storage/v1/${path}?generation=${generation}&alt=media`,
    name,
    bucket,
    generation: String(generation),
    metageneration: String(object.metageneration),
    size: String(object.size_bytes),
    crc32c: object.crc32c,
    ...(object.md5 === null ? {} : {md5Hash: object.md5}),
    ...(object.component_count === null ? {} : {componentCount: object.component_count}),
    etag: etagOf(object),
    contentType: 'application/octet-stream',
    storageClass: 'STANDARD',
    ...fields,
    ...(metadata ? {metadata: metadata as {[key: string]: Json}} : {}),
    timeCreated: object.created_at,
    updated: object.updated_at,
    timeStorageClassUpdated: object.created_at,
    timeFinalized: object.created_at,
  };
}

export function bucketResource(bucket: {name: string; created_at: string}, url: string): JsonObject {
  return {
    kind: 'storage#bucket',
    id: bucket.name,
    name: bucket.name,
    selfLink: `${url}/storage/v1/b/${bucket.name}`,
    projectNumber: '1',
    metageneration: '1',
    location: 'US',
    locationType: 'multi-region',
    storageClass: 'STANDARD',
    etag: 'CAE=',
    timeCreated: bucket.created_at,
    updated: bucket.created_at,
    iamConfiguration: {
      uniformBucketLevelAccess: {enabled: true},
      publicAccessPrevention: 'inherited',
    },
  };
}
