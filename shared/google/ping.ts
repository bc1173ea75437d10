import {reasonOf} from './errors.ts';
import {lazily} from './lazily.ts';

const TIMEOUT_MS = 20_000;

/** Calls worker-api as workers do: with an identity token for its address, or with none on a local cloud, which asks for none. */
export function openPing({worker_api}: {worker_api: string}): () => Promise<void> {
  const isLocal = new URL(worker_api).protocol === 'http:';
  const headers = lazily(async () => {
    const {GoogleAuth} = await import('google-auth-library');
    return new GoogleAuth().getIdTokenClient(worker_api);
  });
  return async () => {
    const token = isLocal ? {} : Object.fromEntries(await (await headers()).getRequestHeaders());
    const response = await fetch(worker_api, {
      method: 'POST',
      headers: {...token, 'content-type': 'application/json'},
      body: JSON.stringify({action: 'ping'}),
      signal: AbortSignal.timeout(TIMEOUT_MS),
    }).catch(cause => {
      throw new Error(`Failed to call ${worker_api}: ${reasonOf(cause)}`, {cause});
    });
    if (!response.ok)
      throw new Error(`${worker_api} answered ${response.status}: ${(await response.text()).slice(0, 200)}`);
  };
}
