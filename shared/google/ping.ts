import {reasonOf} from './errors.ts';
import {memoizeAsync} from './memoize-async.ts';

/** A cold start takes some seconds. The tick waits for the answer before it deletes silent workers. */
const TIMEOUT_MS = 10_000;

/** Calls worker-api as workers do: with an identity token for its address, or with `token` on a local cloud. */
export function openPing({
  worker_api,
  token,
}: {
  worker_api: string;
  token?: string | undefined;
}): () => Promise<void> {
  const isLocal = new URL(worker_api).protocol === 'http:';
  const client = memoizeAsync(async () => {
    const {GoogleAuth} = (await import('google-auth-library')).default;
    return new GoogleAuth().getIdTokenClient(worker_api);
  });
  return async () => {
    const identity = async () => Object.fromEntries(await (await client()).getRequestHeaders());
    const headers = isLocal ? {authorization: `Bearer ${token}`} : await identity();
    const response = await fetch(worker_api, {
      method: 'POST',
      headers: {...headers, 'content-type': 'application/json'},
      body: JSON.stringify({action: 'ping'}),
      signal: AbortSignal.timeout(TIMEOUT_MS),
    }).catch(cause => {
      throw new Error(`Failed to call ${worker_api}: ${reasonOf(cause)}`, {cause});
    });
    if (!response.ok)
      throw new Error(`${worker_api} answered ${response.status}: ${(await response.text()).slice(0, 200)}`);
  };
}
