/** REST calls to Google's APIs with the credentials of the person who types, for what no client of the project covers. */
import {splitTokenPath} from '../../emulator/http/token-path.ts';
import {parsedText} from '../../shared/contracts/printable.ts';
import {isNotFound, reasonOf} from '../../shared/google/errors.ts';
import {knownError} from '../../shared/google/known-errors.ts';
import {memoizeAsync} from '../../shared/google/memoize-async.ts';
import {requireCredentials} from '../connection/connect.ts';
import type {Connection} from '../connection/connection.ts';
import {CliError} from '../text/errors.ts';

export type Json = {[field: string]: unknown};
type Method = 'GET' | 'POST' | 'PATCH' | 'DELETE';

/** Refusal of an API. `code`: the HTTP status, which the predicates of `shared/google/errors.ts` know. */
export class GoogleError extends CliError {
  readonly code: number;
  readonly reason: string;

  constructor(code: number, what: string, reason: string) {
    const advice = knownError(reason)?.mend;
    super(`Failed to ${what}: ${reason}${advice ? `; ${advice}` : ''}`);
    this.code = code;
    this.reason = reason;
  }
}

export type GoogleApi = {
  /** Address that replaces Google's, and the token that it asks for. */
  readonly endpoint: string | undefined;
  readonly token: string | undefined;
  /** Calls `HOST/PATH`, and returns the JSON of the answer. Throws `GoogleError` for a refusal. */
  call(method: Method, address: string, body?: Json): Promise<Json>;
  /** E-mail address of the calling account. */
  account(): Promise<string>;
};

/**
 * GLEANER_GOOGLE_APIS names an address that answers in place of Google, without credentials. All APIs share its root, unless it ends with
 * `/{host}`: then each has the path of its host.
 */
export function openGoogle(
  {endpoint, token}: {endpoint?: string | undefined; token?: string | undefined} = {
    endpoint: process.env.GLEANER_GOOGLE_APIS,
  },
): GoogleApi {
  return endpoint === undefined ? realGoogle() : servedGoogle(endpoint, token);
}

/** The APIs of the cloud of a command. A local cloud serves every API at one address. */
export function googleOf({storage_endpoint: endpoint, token}: Connection): GoogleApi {
  return openGoogle(endpoint === undefined ? undefined : {endpoint, token});
}

function servedGoogle(address: string, given: string | undefined): GoogleApi {
  const {origin: endpoint, pathname} = new URL(address);
  const hasHosts = address.endsWith('/{host}');
  // Google's own clients drop the path of an address, and with it a token.
  const token = given ?? splitTokenPath(pathname).token;
  const headers: Record<string, string> = token ? {authorization: `Bearer ${token}`} : {};
  return {
    ...{endpoint, token},
    call(method, address, body) {
      const path = hasHosts ? `/${address}` : address.slice(address.indexOf('/'));
      return send(method, address, `${endpoint}${path}`, headers, body);
    },
    account: async () => 'local',
  };
}

function realGoogle(): GoogleApi {
  const auth = memoizeAsync(async () => {
    await requireCredentials();
    const {GoogleAuth} = (await import('google-auth-library')).default;
    return new GoogleAuth({scopes: ['https://www.googleapis.com/auth/cloud-platform']});
  });
  return {
    ...{endpoint: undefined, token: undefined},
    async call(method, address, body) {
      const url = `https://${address}`;
      const headers = Object.fromEntries(await (await auth()).getRequestHeaders(url));
      return send(method, address, url, headers, body);
    },
    async account() {
      const opened = await auth();
      const {client_email} = await opened.getCredentials();
      if (client_email) return client_email;
      const query = new URLSearchParams({access_token: (await opened.getAccessToken()) ?? ''});
      const url = `https://oauth2.googleapis.com/tokeninfo?${query}`;
      const {email} = await send('GET', 'oauth2.googleapis.com/tokeninfo', url, {}, undefined);
      return typeof email === 'string' ? email : 'an account without a known address';
    },
  };
}

const CALL_MS = 60_000;

async function send(
  method: Method,
  address: string,
  url: string,
  headers: Record<string, string>,
  body: Json | undefined,
): Promise<Json> {
  const what = `${method} ${address.split('?', 1)[0]}`;
  const noAnswer = (error: Error) => {
    const {message} = error.cause instanceof Error ? error.cause : error;
    throw new GoogleError(503, what, `no answer: ${message}`);
  };
  const answer = await fetch(url, {
    method,
    headers: {...headers, 'content-type': 'application/json'},
    signal: AbortSignal.timeout(CALL_MS),
    ...(body === undefined ? {} : {body: JSON.stringify(body)}),
  }).catch(noAnswer);
  // The connection may break, and the time may end, within the answer.
  const text = await answer.text().catch(noAnswer);
  if (!answer.ok) throw new GoogleError(answer.status, what, reasonOf({message: text}));
  const parsed = text === '' ? {} : parsedText(text);
  if (typeof parsed === 'object' && parsed !== null) return parsed as Json;
  throw new GoogleError(503, what, 'the answer is not a JSON object; a proxy on the way may have changed it');
}

export async function listAll(api: GoogleApi, address: string, field: string): Promise<Json[]> {
  const items: Json[] = [];
  let page: unknown = '';
  do {
    const separator = address.includes('?') ? '&' : '?';
    const suffix = page ? `${separator}pageToken=${encodeURIComponent(String(page))}` : '';
    const answer = await api.call('GET', address + suffix);
    items.push(...((answer[field] ?? []) as Json[]));
    page = answer.nextPageToken;
  } while (page);
  return items;
}

/** The answer of a call, or null for a resource that does not exist. */
export async function absentAsNull<T>(call: Promise<T>): Promise<T | null> {
  try {
    return await call;
  } catch (error) {
    if (isNotFound(error) || isNotFound((error as Error).cause)) return null;
    throw error;
  }
}
