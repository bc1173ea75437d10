/** Callers of worker-api: checks the identity token of a request, and returns the account that it proves. */

import {CallerRefused} from '../contracts/errors.ts';
import {printable} from '../contracts/printable.ts';
import {type Config, requireWorkerApi} from '../contracts/settings/config.ts';
import {required} from '../contracts/settings/identity-settings.ts';
import {memoizeAsync} from './memoize-async.ts';

const ISSUER = 'https://accounts.google.com';
const MOST_SKEW_S = 60;
const MOST_SIGNED = 1000;
/** Cloud Run replaces the signature with this text once it has checked it. */
const REMOVED = 'SIGNATURE_REMOVED_BY_GOOGLE';

type Claims = {[claim: string]: unknown};
type CallerOptions = Pick<Config, 'worker_api' | 'identity'> & {now?: () => number};

/** Settings needed to verify a caller. Throws `ConfigError`, which names each missing variable. */
export function requireVerifier({worker_api, identity}: Pick<Config, 'worker_api' | 'identity'>) {
  const names = ['worker_account', 'control_account', 'ticket_key'] as const;
  const {worker_account, control_account} = required(identity, 'worker-api', names);
  return {worker_account, control_account, audience: requireWorkerApi({worker_api}, 'worker-api')};
}

/**
 * On Cloud Run, IAM has checked the signature and admitted only accounts with the role of an invoker. A token that still has its signature is
 * fully checked here, with Google's certificates or those of a local cloud. The claims are compared in both cases.
 */
export function openCallers({worker_api, identity, now = Date.now}: CallerOptions) {
  const client = memoizeAsync(async () => {
    const {OAuth2Client} = (await import('google-auth-library')).default;
    const {certs} = identity;
    return new OAuth2Client(certs ? {endpoints: {oauth2FederatedSignonPemCertsUrl: certs}} : {});
  });
  /** Tokens whose signature is checked: a host sends each of its tokens for an hour. */
  const signed = new Set<string>();

  async function requireSignature(token: string, audience: string): Promise<void> {
    if (signed.has(token)) return;
    const opened = await client();
    // If this request fails, the caller is not at fault: it asks again.
    const {certs} = await opened.getFederatedSignonCertsAsync();
    try {
      await opened.verifySignedJwtWithCertsAsync(token, certs, audience, [ISSUER]);
    } catch (cause) {
      // The library's own message would quote the token.
      throw new CallerRefused(401, 'the signature of the identity token is not that of its issuer', {cause});
    }
    if (signed.size >= MOST_SIGNED) signed.clear();
    signed.add(token);
  }

  return async (authorization: string | undefined): Promise<'worker' | 'control'> => {
    const {worker_account, control_account, audience} = requireVerifier({worker_api, identity});
    const token = /^Bearer ([\w-]+\.[\w-]+\.[\w-]+)$/i.exec(authorization ?? '')?.[1];
    if (!token) throw new CallerRefused(401, 'the request has no identity token');
    const [header = '', payload = '', signature] = token.split('.');
    const claims = decode(payload);
    if (decode(header).alg !== 'RS256')
      throw new CallerRefused(401, 'the identity token is not signed RS256');
    requireClaims(claims, audience, now() / 1000);
    if (!identity.is_on_cloud_run || signature !== REMOVED) await requireSignature(token, audience);
    if (claims.email === worker_account) return 'worker';
    if (claims.email === control_account) return 'control';
    throw new CallerRefused(
      403,
      `the identity token is of ${quoted(claims.email)}, and worker-api answers ${worker_account} (GLEANER_WORKER_SERVICE_ACCOUNT) and ${control_account} (GLEANER_CONTROL_SERVICE_ACCOUNT): correct the variable, or send a token of these accounts`,
    );
  };
}

function decode(part: string): Claims {
  try {
    const value = JSON.parse(Buffer.from(part, 'base64url').toString('utf8'));
    return typeof value === 'object' && value !== null ? value : {};
  } catch (cause) {
    throw new CallerRefused(401, 'the identity token is not readable', {cause});
  }
}

/** A claim as text for a log. The claims of a refused token are foreign text. */
function quoted(claim: unknown): string {
  return printable(JSON.stringify(claim) ?? 'nothing').slice(0, 200);
}

function requireClaims({aud, iss, email_verified, exp, iat}: Claims, audience: string, now_s: number): void {
  const problems = [
    ...(aud === audience
      ? []
      : [`it is for the audience ${quoted(aud)}, and GLEANER_WORKER_API of worker-api is ${audience}`]),
    ...(iss === ISSUER ? [] : ['Google has not issued it']),
    ...(email_verified === true ? [] : ['its e-mail address is not verified']),
    ...(typeof exp === 'number' && now_s <= exp + MOST_SKEW_S ? [] : ['it has expired']),
    ...(typeof iat === 'number' && iat - MOST_SKEW_S <= now_s ? [] : ['it is not valid yet']),
  ];
  if (problems.length > 0)
    throw new CallerRefused(401, `the identity token is refused: ${problems.join(', ')}`);
}
