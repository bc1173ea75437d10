import {ApiError} from '../http/errors.ts';
import type {Reply, Request} from '../http/http.ts';
import {isObject, type Json, type JsonObject} from '../http/json.ts';
import {optionalString, readJson} from '../http/request-body.ts';
import {type Blobs, readFrom} from './blobs.ts';
import {conditionsFrom, requireConditions, wholeNumber} from './conditions.ts';
import type {ObjectTable} from './objects.ts';
import {checkObjectName, type Fields, fieldsOf, resourceOf, type StoredObject} from './resource.ts';
import {requireRights, type Upload} from './upload.ts';

type Stores = Pick<Upload, 'objects' | 'blobs' | 'requireRight'>;

async function copied({objects, blobs}: Stores, request: Request): Promise<StoredObject> {
  const {bucket = '', object = '', to_bucket = '', to_object = ''} = request.params;
  const resource = await readJson(request.body);
  const source = objects.get(bucket, object, wholeNumber(request.query, 'sourceGeneration'));
  requireConditions(conditionsFrom(request.query, 'source'), source);
  checkObjectName(to_object);
  objects.bucket(to_bucket);
  // A body replaces every field of the object. An empty body keeps the fields.
  const hasBody = Object.keys(resource).length > 0;
  const {contentType} = source.fields;
  const fields: Fields = hasBody
    ? {...(contentType ? {contentType} : {}), ...fieldsOf(resource)}
    : source.fields;
  const file = await blobs.draftOf(source.generation);
  const {size_bytes, crc32c, md5, component_count} = source;
  const bytes = {file, size_bytes, crc32c, md5, ...(component_count === null ? {} : {component_count})};
  return objects.create(to_bucket, to_object, bytes, fields, conditionsFrom(request.query));
}

export async function copy(stores: Stores, request: Request): Promise<Reply> {
  return {json: resourceOf(await copied(stores, request), request.origin)};
}

export async function move(stores: Stores, request: Request): Promise<Reply> {
  const {bucket = '', object = ''} = request.params;
  const params = {...request.params, to_bucket: bucket};
  const reply = await copy(stores, {...request, params});
  await stores.objects.delete(bucket, object, {});
  return reply;
}

/** Completes every rewrite in one call, because a copy is a hard link on the same disk. */
export async function rewrite(stores: Stores, request: Request): Promise<Reply> {
  const object = await copied(stores, request);
  const size = String(object.size_bytes);
  return {
    json: {
      kind: 'storage#rewriteResponse',
      totalBytesRewritten: size,
      objectSize: size,
      done: true,
      resource: resourceOf(object, request.origin),
    },
  };
}

export async function compose(stores: Stores, request: Request): Promise<Reply> {
  const {objects, blobs, requireRight} = stores;
  const {bucket = '', object: name = ''} = request.params;
  requireRights(stores, request, bucket, name);
  const body = await readJson(request.body);
  const parts = Array.isArray(body.sourceObjects) ? body.sourceObjects : [];
  if (parts.length === 0 || parts.length > 32) {
    throw new ApiError(
      400,
      `Failed to compose ${name}: it needs 1 to 32 sourceObjects and was given ${parts.length}`,
    );
  }
  const isMove = request.query.get('deleteSourceObjects') === 'true';
  const sources = parts.filter(isObject).map(part => {
    const source = optionalString(part.name, 'name') ?? '';
    for (const right of isMove ? (['get', 'delete'] as const) : (['get'] as const))
      requireRight(request, right, bucket, source);
    return sourceOf(objects, bucket, part);
  });
  const destination = isObject(body.destination) ? body.destination : {};
  const conditions = conditionsFrom(request.query);
  requireConditions(conditions, objects.find(bucket, name));
  const {md5: _none, ...draft} = await blobs.draft(concatenated(blobs, sources));
  const component_count = sources.reduce((count, source) => count + (source.component_count ?? 1), 0);
  const fields = fieldsOf(destination);
  if (!fields.contentType && sources[0]?.fields.contentType)
    fields.contentType = sources[0].fields.contentType;
  const made = await objects.create(bucket, name, {...draft, md5: null, component_count}, fields, conditions);
  if (isMove) {
    for (const source of sources) await objects.delete(bucket, source.name, {});
  }
  return {json: resourceOf(made, request.origin)};
}

function sourceOf(objects: ObjectTable, bucket: string, part: JsonObject): StoredObject {
  const {name, generation, objectPreconditions} = part;
  const source = objects.get(bucket, optionalString(name, 'name') ?? '', numberOf(generation));
  const wanted = isObject(objectPreconditions) ? numberOf(objectPreconditions.ifGenerationMatch) : undefined;
  requireConditions({ifGenerationMatch: wanted}, source);
  return source;
}

/** Generation in a request: a string, a number or null. */
function numberOf(value: Json | undefined): number | undefined {
  return value === undefined || value === null ? undefined : Number(value);
}

async function* concatenated(blobs: Blobs, sources: StoredObject[]): AsyncGenerator<Buffer> {
  for (const source of sources) {
    const handle = await blobs.open(source.generation);
    if (source.size_bytes > 0) yield* readFrom(handle, 0, source.size_bytes - 1) as AsyncIterable<Buffer>;
    else await handle.close();
  }
}
