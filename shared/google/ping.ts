import {ServiceError} from '../contracts/errors.ts';
import {reasonOf} from './errors.ts';

/** A cold start takes some seconds. The tick waits for the answer before it deletes silent workers. */
const PING_TIMEOUT_MS = 10_000;
const TOKEN_TIMEOUT_MS = 5000;

type Target = {worker_api: string; metadata_host: string};

/** Calls worker-api on the path of the workers, with an identity token of the account that this process runs as. */
export async function sendPing({worker_api, metadata_host}: Target): Promise<void> {
  const token = await identityToken(metadata_host, worker_api);
  const response = await fetch(worker_api, {
    method: 'POST',
    headers: {authorization: `Bearer ${token}`, 'content-type': 'application/json'},
    body: JSON.stringify({action: 'ping'}),
    signal: AbortSignal.timeout(PING_TIMEOUT_MS),
  }).catch(cause => {
    throw new ServiceError(`Failed to call ${worker_api}: ${reasonOf(cause)}`, {cause});
  });
  if (!response.ok)
    throw new Error(`${worker_api} answered ${response.status}: ${(await response.text()).slice(0, 200)}`);
}

/** An identity token of the account that this process runs as, from its metadata server, which renews it in time. */
async function identityToken(metadata_host: string, audience: string): Promise<string> {
  const query = new URLSearchParams({audience, format: 'full'});
  const url = `http://${metadata_host}/computeMetadata/v1/instance/service-accounts/default/identity?${query}`;
  const options = {headers: {'metadata-flavor': 'Google'}, signal: AbortSignal.timeout(TOKEN_TIMEOUT_MS)};
  const response = await fetch(url, options).catch(cause => {
    throw new ServiceError(`Failed to get an identity token from the metadata server: ${reasonOf(cause)}`, {
      cause,
    });
  });
  const text = await response.text();
  if (!response.ok)
    throw new ServiceError(
      `Failed to get an identity token: the metadata server answered ${response.status}: ${text.slice(0, 200)}`,
    );
  return text.trim();
}
