import type {Right} from '../http/boundary.ts';
import {ApiError} from '../http/errors.ts';
import type {Handler, Reply, Request, Route} from '../http/http.ts';
import {optionalString, readJson} from '../http/request-body.ts';
import type {CloudDatabase} from '../state/database.ts';
import {batchRoute} from './batch.ts';
import {Blobs} from './blobs.ts';
import {conditionsFrom, wholeNumber} from './conditions.ts';
import {compose, copy, move, rewrite} from './copy.ts';
import {download, isObjectFound, readable} from './download.ts';
import {listObjects} from './list.ts';
import {ObjectTable, type OnFinalized} from './objects.ts';
import {bucketResource, patched, resourceOf} from './resource.ts';
import {ResumableUploads} from './resumable.ts';
import type {RequireRight} from './rights.ts';
import {insert, requireRights, type Upload} from './upload.ts';
import {BucketView} from './view.ts';

export type Storage = {
  objects: ObjectTable;
  routes: Route[];
  /** `GET /BUCKET/OBJECT`, the address of the bytes in the XML API. Last, because it matches nearly every path. */
  lastRoute: Route;
  recover(): ReturnType<ObjectTable['recover']>;
};

/** JSON API of Cloud Storage on a folder and a database. */
export function openStorage(
  dir: string,
  database: CloudDatabase,
  onFinalized: OnFinalized,
  requireRight: RequireRight = () => {},
): Storage {
  const blobs = new Blobs(dir);
  const objects = new ObjectTable(database, blobs, new BucketView(dir), onFinalized);
  const resumable = new ResumableUploads(database, blobs, objects);
  const stores = {objects, blobs, resumable, requireRight};
  const permitted = withRight(requireRight);
  const routes = [...objectRoutes(stores), ...bucketRoutes(objects, requireRight)];
  return {
    objects,
    routes: [...routes, ...routes.flatMap(withoutPrefix), batchRoute('/batch/storage/v1', routes)],
    lastRoute: ['GET', '/{bucket}/{object...}', permitted('get', request => plainDownload(objects, request))],
    recover: () => {
      resumable.prune();
      return objects.recover(id => resumable.isOpen(id));
    },
  };
}

/**
 * Route without the prefix `/storage/v1`, which Node's client omits with STORAGE_EMULATOR_HOST and Python's client adds.
 * `/b/` is unambiguous, because the name of a bucket has at least three characters.
 */
function withoutPrefix([method, path, ...rest]: Route): Route[] {
  return path.startsWith('/storage/v1/b') ? [[method, path.slice('/storage/v1'.length), ...rest]] : [];
}

/** Handler of requests on one object, for accounts that have the right on the object. */
function withRight(requireRight: RequireRight) {
  return (right: Right, handle: Handler): Handler =>
    request => {
      requireRight(request, right, request.params.bucket ?? '', request.params.object ?? '');
      return handle(request);
    };
}

function objectRoutes(stores: Upload): Route[] {
  const {objects, resumable, requireRight} = stores;
  const permitted = withRight(requireRight);

  /** A copy reads its source, and creates or replaces its target. So does a compose, with its sources. */
  const copying = (work: typeof copy) =>
    permitted('get', request => {
      const {to_bucket = '', to_object = ''} = request.params;
      requireRights(stores, request, to_bucket, to_object);
      return work(stores, request);
    });

  const get: Handler = request => {
    if (request.query.get('alt') === 'media') return download(objects, request);
    const found = readable(objects, request);
    return isObjectFound(found) ? {json: resourceOf(found, request.origin)} : found;
  };

  /** PATCH changes the fields that it names, and PUT replaces every field. */
  const change: Handler = async request => {
    const {bucket = '', object = ''} = request.params;
    const resource = await readJson(request.body);
    const generation = wholeNumber(request.query, 'generation');
    const changed = (fields: Parameters<typeof patched>[0]) =>
      patched(request.method === 'PUT' ? {} : fields, resource);
    const conditions = conditionsFrom(request.query);
    const updated = objects.update(bucket, object, changed, conditions, generation);
    return {json: resourceOf(updated, request.origin)};
  };

  const remove: Handler = async request => {
    const {bucket = '', object = ''} = request.params;
    const generation = wholeNumber(request.query, 'generation');
    await objects.delete(bucket, object, conditionsFrom(request.query), generation);
    return {status: 204, body: ''};
  };

  const list: Handler = request => {
    const {bucket = ''} = request.params;
    requireRight(request, 'list', bucket, request.query.get('prefix') ?? '');
    return {json: listObjects(objects, bucket, request.query, request.origin)};
  };

  const unknown: Handler = ({params}) => {
    const encoded = encodeURIComponent(params.object ?? '');
    throw new ApiError(404, `No such object path: percent-encode the slashes, …/o/${encoded}`);
  };

  const upload: Handler = request => insert(stores, request);
  const resume: Handler = request => resumable.put(request);
  const cancel: Handler = request => resumable.cancel(request);
  const object = '/storage/v1/b/{bucket}/o/{object}';
  const target = 'b/{to_bucket}/o/{to_object}';
  return [
    ['POST', '/upload/storage/v1/b/{bucket}/o', upload],
    ['PUT', '/upload/storage/v1/b/{bucket}/o', resume],
    ['DELETE', '/upload/storage/v1/b/{bucket}/o', cancel],
    // Paths of gcloud for the same requests.
    ['POST', '/resumable/upload/storage/v1/b/{bucket}/o', upload],
    ['PUT', '/resumable/upload/storage/v1/b/{bucket}/o', resume],
    ['DELETE', '/resumable/upload/storage/v1/b/{bucket}/o', cancel],
    ['GET', `/download${object}`, permitted('get', request => download(objects, request))],
    ['GET', '/storage/v1/b/{bucket}/o', list],
    ['POST', `${object}/copyTo/${target}`, copying(copy)],
    ['POST', `${object}/rewriteTo/${target}`, copying(rewrite)],
    // No account has the right to move, so its clients copy and delete.
    ['POST', `${object}/moveTo/o/{to_object}`, permitted('move', request => move(stores, request))],
    ['POST', `${object}/compose`, request => compose(stores, request)],
    ['GET', object, permitted('get', get)],
    ['PATCH', object, permitted('update', change)],
    ['PUT', object, permitted('update', change)],
    ['DELETE', object, permitted('delete', remove)],
    ['GET', '/storage/v1/b/{bucket}/o/{object...}', unknown],
  ];
}

function bucketRoutes(objects: ObjectTable, requireRight: RequireRight): Route[] {
  const make: Handler = async request => {
    const name = optionalString((await readJson(request.body)).name, 'name') ?? '';
    return {json: bucketResource(objects.makeBucket(name), request.origin)};
  };
  const list: Handler = request => {
    const prefix = request.query.get('prefix') ?? '';
    const found = objects.buckets().filter(({name}) => name.startsWith(prefix));
    const items = found.map(entry => bucketResource(entry, request.origin));
    return {json: {kind: 'storage#buckets', ...(items.length > 0 ? {items} : {})}};
  };
  const get: Handler = request => {
    const {bucket: name = ''} = request.params;
    requireRight(request, 'see', name, '');
    return {json: bucketResource(objects.bucket(name), request.origin)};
  };
  const layout: Handler = request => {
    const {name} = objects.bucket(request.params.bucket ?? '');
    const kind = 'storage#storageLayout';
    return {json: {kind, bucket: name, location: 'US', locationType: 'multi-region'}};
  };
  const permissions: Handler = ({query}) => ({
    json: {kind: 'storage#testIamPermissionsResponse', permissions: query.getAll('permissions')},
  });
  const bucket = '/storage/v1/b/{bucket}';
  return [
    ['GET', '/storage/v1/b', list],
    ['POST', '/storage/v1/b', make],
    ['GET', bucket, get, ''],
    ['GET', `${bucket}/storageLayout`, layout],
    ['GET', `${bucket}/iam/testPermissions`, permissions],
  ];
}

function plainDownload(objects: ObjectTable, request: Request): Promise<Reply> {
  const {bucket = '', object = ''} = request.params;
  if (!objects.find(bucket, object)) {
    throw new ApiError(
      404,
      `Nothing is at GET ${request.path} in the local cloud: no such API, no such object`,
    );
  }
  return download(objects, request);
}
