import {reasonOf} from './errors.ts';

const TIMEOUT_MS = 5000;

/** An identity token of the account that this process runs as, from its metadata server. The server renews the token in time. */
export async function identityToken(metadata_host: string, audience: string): Promise<string> {
  const query = new URLSearchParams({audience, format: 'full'});
  const url = `http://${metadata_host}/computeMetadata/v1/instance/service-accounts/default/identity?${query}`;
  const options = {headers: {'metadata-flavor': 'Google'}, signal: AbortSignal.timeout(TIMEOUT_MS)};
  const response = await fetch(url, options).catch(cause => {
    throw new Error(`Failed to get an identity token from the metadata server: ${reasonOf(cause)}`, {cause});
  });
  const text = await response.text();
  if (!response.ok)
    throw new Error(
      `Failed to get an identity token: the metadata server answered ${response.status}: ${text.slice(0, 200)}`,
    );
  return text.trim();
}
