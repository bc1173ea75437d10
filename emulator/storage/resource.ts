import {ApiError} from '../http/errors.ts';
import {isObject, type Json, type JsonObject} from '../http/json.ts';
import {optionalString, stringMap} from '../http/request-body.ts';

const textFields = [
  ...(['contentType', 'contentEncoding', 'contentDisposition', 'contentLanguage'] as const),
  ...(['cacheControl', 'customTime', 'storageClass'] as const),
];

/** Writable fields of an object, under the names of the API. */
export type Fields = {[field in (typeof textFields)[number]]?: string} & {metadata?: Record<string, string>};

export type StoredObject = {
  bucket: string;
  name: string;
  generation: number;
  metageneration: number;
  size_bytes: number;
  crc32c: string;
  /** Null for composed objects, as at Google. */
  md5: string | null;
  component_count: number | null;
  fields: Fields;
  created_at: string;
  updated_at: string;
};

/** Writable fields of a resource. Ignores other fields (acl, kind, id …), which clients send back with a resource. */
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

/** Fields after a patch: an absent field stays, null removes a field, metadata is merged by key. */
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
      `Invalid value for ${field}: it contains a character that an HTTP header cannot contain`,
    );
  }
  return value;
}

function checkedMetadata(metadata: Record<string, string>): Record<string, string> {
  const size = Buffer.byteLength(Object.entries(metadata).flat().join(''));
  if (size > 8192) throw new ApiError(400, `Invalid value for metadata: ${size} bytes; the limit is 8192`);
  return metadata;
}

export function checkObjectName(name: string): void {
  const bytes = Buffer.byteLength(name);
  const complaint =
    bytes === 0
      ? 'it is empty'
      : bytes > 1024
        ? `it has ${bytes} bytes; the limit is 1024`
        : /[\r\n]/.test(name)
          ? 'it contains a line break'
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
