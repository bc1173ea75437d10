import {ApiError} from '../http/errors.ts';
import type {JsonObject} from '../http/json.ts';
import {wholeNumber} from './conditions.ts';
import {lastWith, type ObjectTable} from './objects.ts';
import {resourceOf, type StoredObject} from './resource.ts';

/** `objects.list`: names in byte order, folded at the delimiter, in pages. */
export function listObjects(
  objects: ObjectTable,
  bucket: string,
  query: URLSearchParams,
  url: string,
): JsonObject {
  objects.bucket(bucket);
  if (query.get('matchGlob')) {
    throw new ApiError(501, 'matchGlob is not part of the local cloud; list with prefix and delimiter');
  }
  // The emulator has no soft delete.
  if (query.get('softDeleted') === 'true') return {kind: 'storage#objects'};
  const prefix = query.get('prefix') ?? '';
  const delimiter = query.get('delimiter') ?? '';
  const withFolder = query.get('includeTrailingDelimiter') === 'true';
  const limit = Math.min(Math.max(1, wholeNumber(query, 'maxResults') ?? 1000), 1000);
  const bounds = {prefix, start: query.get('startOffset') ?? '', end: query.get('endOffset') ?? ''};

  const items: StoredObject[] = [];
  const prefixes: string[] = [];
  let last = decodeToken(query.get('pageToken'));
  let after = fromToken(last);
  let isMore = false;
  scan: for (;;) {
    const page = objects.page(bucket, {...bounds, after}, 500);
    if (page.length === 0) break;
    for (const object of page) {
      const cut = delimiter === '' ? -1 : object.name.indexOf(delimiter, prefix.length);
      const folder = cut < 0 ? undefined : object.name.slice(0, cut + delimiter.length);
      const isItem = folder === undefined || (withFolder && object.name === folder);
      const isNewPrefix = folder !== undefined && prefixes.at(-1) !== folder;
      if ((isItem || isNewPrefix) && items.length + prefixes.length >= limit) {
        isMore = true;
        break scan;
      }
      if (isItem) items.push(object);
      if (isNewPrefix) prefixes.push(folder);
      last = folder === undefined ? `n${object.name}` : `p${folder}`;
      after = fromToken(last);
      // Every other name of this folder has the same prefix, so the next page starts after the folder.
      if (folder !== undefined) continue scan;
    }
  }
  return {
    kind: 'storage#objects',
    ...(items.length > 0 ? {items: items.map(object => resourceOf(object, url))} : {}),
    ...(prefixes.length > 0 ? {prefixes} : {}),
    ...(isMore ? {nextPageToken: Buffer.from(last).toString('base64url')} : {}),
  };
}

/** Last entry of the earlier page, from its token: `n` and a name, or `p` and a prefix. */
function decodeToken(token: string | null): string {
  const last = Buffer.from(token ?? '', 'base64url').toString('utf8');
  if (token && !/^[np]./s.test(last)) {
    throw new ApiError(400, `Invalid value for pageToken: "${token}" was not given by this server`);
  }
  return last;
}

/** Name after which the next page starts. */
function fromToken(last: string): string {
  return last.startsWith('p') ? lastWith(last.slice(1)) : last.slice(1);
}
