/** A request to every address of a cloud, and the addresses whose guards and permissions let it pass. */
import type {LocalCloud} from '../../emulator/cloud.ts';

const VALUES: Record<string, string> = {
  ...{project: 'gleaner-local', zone: 'us-central1-a', location: 'us-central1', job: 'gleaner-tick'},
  ...{bucket: 'gleaner-local', object: 'foreign', to_bucket: 'gleaner-local', to_object: 'foreign'},
  topic: 'control',
};

/** Addresses that answer without a token: they say nothing about the cloud, or a random id or a token in the body permits more. */
export const OPEN = [
  'DELETE /resumable/upload/storage/v1/b/{bucket}/o',
  'DELETE /upload/storage/v1/b/{bucket}/o',
  'GET /_local',
  'GET /oauth2/v1/certs',
  'POST /v1/token',
  'PUT /resumable/upload/storage/v1/b/{bucket}/o',
  'PUT /upload/storage/v1/b/{bucket}/o',
];

/** Sends a request to each address with values that name nothing of the sender, and returns those that answer neither 401 nor 403. */
export async function answered(
  {url, routes}: LocalCloud,
  prefix: string,
  headers: Record<string, string>,
): Promise<string[]> {
  const passed: string[] = [];
  for (const {method, template} of routes) {
    const path = template.replace(/\{(\w+)(\.\.\.)?\}/g, (_, name: string) => VALUES[name] ?? 'none');
    const {status} = await fetch(`${url}${prefix}${path}?uploadType=media&name=foreign`, {
      ...{method: method === '*' ? 'POST' : method, headers},
      ...(method === 'GET' || method === 'DELETE' ? {} : {body: '{}'}),
    });
    if (status !== 401 && status !== 403) passed.push(`${method} ${template}`);
  }
  return passed.toSorted();
}
