import {reasonOf} from './errors.ts';
import {identityToken} from './identity-token.ts';

/** A cold start takes some seconds. The tick waits for the answer before it deletes silent workers. */
const TIMEOUT_MS = 10_000;

type Target = {worker_api: string; metadata_host: string};

/** Calls worker-api on the path of the workers, with an identity token of the account that this process runs as. */
export async function sendPing({worker_api, metadata_host}: Target): Promise<void> {
  const token = await identityToken(metadata_host, worker_api);
  const response = await fetch(worker_api, {
    method: 'POST',
    headers: {authorization: `Bearer ${token}`, 'content-type': 'application/json'},
    body: JSON.stringify({action: 'ping'}),
    signal: AbortSignal.timeout(TIMEOUT_MS),
  }).catch(cause => {
    throw new Error(`Failed to call ${worker_api}: ${reasonOf(cause)}`, {cause});
  });
  if (!response.ok)
    throw new Error(`${worker_api} answered ${response.status}: ${(await response.text()).slice(0, 200)}`);
}
