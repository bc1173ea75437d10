/** The pages of a store, without a port. */

import type {Hono} from 'hono';
import type {Cloud} from '../../../client/cloud/cloud.ts';
import {googleConnection} from '../../../client/connection/google-connection.ts';
import {MirrorStore} from '../../../dashboard/mirror-store.ts';
import {dashboardRouter} from '../../../dashboard/router.ts';
import {ObjectTooLarge} from '../../../shared/contracts/errors.ts';
import type {ObjectInfo, Objects, Store} from '../../../shared/ports/ports.ts';

/** Objects in memory, read alone. */
export function someObjects(texts: Record<string, string> = {}): Objects {
  const infoOf = (name: string): ObjectInfo => ({
    ...{name, generation: '1', size_bytes: (texts[name] ?? '').length, crc32c: 'AAAAAA=='},
    ...{created_at: '2026-01-02T03:04:05.000Z', metadata: {}},
  });
  const never = () => Promise.reject(new Error('a page writes no object'));
  return {
    bucket: 'bucket',
    list: async prefix =>
      Object.keys(texts)
        .filter(name => name.startsWith(prefix))
        .sort()
        .map(infoOf),
    head: async name => (name in texts ? infoOf(name) : undefined),
    read: async (name, {max_bytes}) => {
      const bytes = name in texts ? Buffer.from(texts[name] ?? '') : undefined;
      if (bytes && bytes.length > max_bytes) throw new ObjectTooLarge(name);
      return bytes;
    },
    create: never,
    replace: never,
    readRange: never,
    move: never,
    delete: never,
  };
}

export type Pages = {
  app: Hono;
  get: (path: string) => Promise<{status: number; text: string}>;
  reads: () => number;
};

/** `now`: milliseconds of the clock. */
export function somePages(store: Store, now: () => number, objects = someObjects()): Pages {
  let reads = 0;
  const mirror = new MirrorStore(store, {
    now,
    spend: documents => {
      reads += documents;
    },
    jobs: 'jobs',
    seldom_ms: 30_000,
    whole_ms_each: 800,
  });
  const cloud: Cloud = {
    ...{store: mirror, objects, jobs: 'jobs'},
    connection: googleConnection({project: 'p', deployment: 'gleaner', origin: 'the test'}),
  };
  const {app} = dashboardRouter({
    source: {
      ...{cloud, logs: objects, now},
      features: {
        read: async ({name, layer, id}) => ({text: `${name} ${layer} ${id}`, isUnread: false}),
        close: () => {},
      },
    },
    feed: {now, interval_ms: 1000, waitMs: () => 0},
    guard: async (_, next) => next(),
    name: 'p, gleaner',
  });
  const get = async (path: string) => {
    const response = await app.request(path);
    return {status: response.status, text: await response.text()};
  };
  return {app, get, reads: () => reads};
}
