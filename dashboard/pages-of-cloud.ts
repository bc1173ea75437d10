/** The pages of a cloud, with the reads that they may make. */
import type {MiddlewareHandler} from 'hono';
import type {Cloud} from '../cli/cloud/cloud.ts';
import type {Objects} from '../shared/ports.ts';
import {Allowance} from './allowance.ts';
import {billedObjects} from './billed-objects.ts';
import {MirrorStore} from './mirror-store.ts';
import {dashboardRouter} from './router.ts';

const [LOCAL_MS, GOOGLE_MS] = [1000, 5000];
/** Milliseconds for each document between two reads of a whole collection: a local cloud reads for nothing. */
const [LOCAL_WHOLE_MS, GOOGLE_WHOLE_MS] = [5, 800];
const [LOCAL_SELDOM_MS, GOOGLE_SELDOM_MS] = [900, 30_000];

/** `guard`: who may read. */
export function openPages(
  cloud: Cloud,
  logs: Objects,
  guard: MiddlewareHandler,
): ReturnType<typeof dashboardRouter> {
  const {is_google, project, deployment} = cloud.connection;
  const now = Date.now;
  const allowance = new Allowance(now);
  const spend: Allowance['spend'] = is_google ? (...spent) => allowance.spend(...spent) : () => {};
  const store = new MirrorStore(cloud.store, {
    now,
    jobs: cloud.jobs,
    spend: documents => spend('firestore_read', documents),
    seldom_ms: is_google ? GOOGLE_SELDOM_MS : LOCAL_SELDOM_MS,
    whole_ms_each: is_google ? GOOGLE_WHOLE_MS : LOCAL_WHOLE_MS,
  });
  return dashboardRouter({
    source: {
      cloud: {...cloud, store, objects: billedObjects(cloud.objects, spend)},
      logs: billedObjects(logs, spend),
      now,
    },
    feed: {
      now,
      interval_ms: is_google ? GOOGLE_MS : LOCAL_MS,
      waitMs: () => (is_google ? allowance.waitMs() : 0),
    },
    guard,
    name: is_google ? `${project}, ${deployment}` : 'local cloud',
  });
}
