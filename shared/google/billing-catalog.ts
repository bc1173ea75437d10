/** Adapter of the Cloud Billing Catalog, a public REST API: an account needs a token and no role. */
import {z} from 'zod';
import {ServiceError} from '../contracts/errors.ts';
import {parseJson} from '../contracts/messages/schemas.ts';
import {CHIP_SERVICE, sku} from '../domain/billing/catalog.ts';
import type {Catalog} from '../ports/ports.ts';
import {withAdvice} from './errors.ts';
import {memoizeAsync} from './memoize-async.ts';

const ADDRESS = 'https://cloudbilling.googleapis.com';
const PAGE_SIZE = 5000;
/** A page of 5000 items has several megabytes. */
const TIMEOUT_MS = 30_000;
const SCOPE = 'https://www.googleapis.com/auth/cloud-billing.readonly';

const answer = z.object({skus: z.array(sku).default([]), nextPageToken: z.string().default('')});

/** `endpoint` replaces Google's address, and `token` authorises calls to it. */
type Server = {endpoint?: string | undefined; token?: string | undefined};

export function openCatalog({endpoint, token}: Server): Catalog {
  const account = memoizeAsync(async () => {
    const {GoogleAuth} = (await import('google-auth-library')).default;
    return new GoogleAuth({scopes: [SCOPE]});
  });
  const headers = async () =>
    endpoint ? new Headers({authorization: `Bearer ${token}`}) : (await account()).getRequestHeaders();
  return {
    page: async pageToken => {
      const query = new URLSearchParams({
        pageSize: String(PAGE_SIZE),
        currencyCode: 'USD',
        ...(pageToken && {pageToken}),
      });
      const url = `${endpoint ?? ADDRESS}/v1/services/${CHIP_SERVICE}/skus?${query}`;
      const failed = (cause: unknown) =>
        new ServiceError(`Failed to read the prices of the Billing Catalog: ${withAdvice(cause)}`, {cause});
      const options = {headers: await headers().catch(cause => Promise.reject(failed(cause)))};
      const response = await fetch(url, {...options, signal: AbortSignal.timeout(TIMEOUT_MS)}).catch(
        cause => {
          throw failed(cause);
        },
      );
      const text = await response.text();
      if (!response.ok) throw failed(Object.assign(new Error(text.slice(0, 2000)), {code: response.status}));
      const {skus, nextPageToken} = parseJson(answer, text, 'The answer of the Billing Catalog');
      return {skus, next: nextPageToken};
    },
  };
}
