/** Security Token Service: exchanges the access token of an account for one with a boundary. */
import {EXCHANGE_PATH, narrowedTokenOf, tokenAccount} from './http/access-tokens.ts';
import {type Boundary, boundaryOptions} from './http/boundary.ts';
import type {Reply, Request, Route} from './http/http.ts';
import {readBytes} from './http/request-body.ts';

const ACCESS_TOKEN = 'urn:ietf:params:oauth:token-type:access_token';
const FIXED = {
  grant_type: 'urn:ietf:params:oauth:grant-type:token-exchange',
  requested_token_type: ACCESS_TOKEN,
  subject_token_type: ACCESS_TOKEN,
};
const MOST_BYTES = 64 << 10;
/** Greatest age of a token from a metadata server of a local cloud. */
const LIFE_S = 3599;

export function tokenServiceRoutes(token: string): Route[] {
  return [['POST', EXCHANGE_PATH, request => exchange(request, token)]];
}

async function exchange({headers, body}: Request, token: string): Promise<Reply> {
  if (!/^application\/x-www-form-urlencoded\b/i.test(headers['content-type'] ?? ''))
    return refusal('invalid_request', 'The body is not a form: send application/x-www-form-urlencoded');
  const form = new URLSearchParams((await readBytes(body, MOST_BYTES, 'the exchange')).toString('utf8'));
  for (const [field, value] of Object.entries(FIXED)) {
    if (form.getAll(field).length !== 1) return refusal('invalid_request', `Missing or repeated: ${field}`);
    if (form.get(field) !== value) return refusal('invalid_request', `Invalid value for "${field}"`);
  }
  const boundary = boundaryIn(form.get('options') ?? '');
  if (typeof boundary === 'string') return refusal('invalid_request', boundary);
  const email = emailOf(form.get('subject_token') ?? '', token);
  if (email === undefined)
    return refusal('invalid_grant', 'The subject token is not an access token of an account');
  const access_token = narrowedTokenOf(token, {email, boundary, expires_at_ms: Date.now() + LIFE_S * 1000});
  return {
    json: {access_token, expires_in: LIFE_S, issued_token_type: ACCESS_TOKEN, token_type: 'Bearer'},
  };
}

/** The boundary of an exchange, or what is wrong with it. */
function boundaryIn(options: string): Boundary | string {
  let value: unknown;
  try {
    value = JSON.parse(options);
  } catch {
    return 'Invalid value for "options": it is not JSON';
  }
  const parsed = boundaryOptions.safeParse(value);
  if (parsed.success) return parsed.data.accessBoundary;
  const [problem] = parsed.error.issues;
  return `Invalid value for "options": ${problem?.path.join('.')}: ${problem?.message}`;
}

/** A narrowed token cannot be narrowed again. */
function emailOf(subject: string, token: string): string | undefined {
  try {
    const account = tokenAccount(subject, token);
    return account?.boundary === undefined ? account?.email : undefined;
  } catch {
    return undefined;
  }
}

/** Errors of OAuth, RFC 6749, section 5.2. */
function refusal(error: 'invalid_request' | 'invalid_grant', error_description: string): Reply {
  return {status: 400, json: {error, error_description}};
}
