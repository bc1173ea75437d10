/** Callers of worker-api: checks the identity token of a request, and says which account it proves. */
import {type Config, requireWorkerApi} from '../contracts/config.ts';
import {CallerRefused} from '../contracts/errors.ts';
import {required} from '../contracts/identity-settings.ts';
import {memoizeAsync} from './memoize-async.ts';

const ISSUER = 'https://accounts.google.com';
const MOST_SKEW_S = 60;
/** Cloud Run writes this text in place of the signature that it has checked. */
const REMOVED = 'SIGNATURE_REMOVED_BY_GOOGLE';

type Claims = {[claim: string]: unknown};
type Options = Pick<Config, 'worker_api' | 'identity'> & {now?: () => number};

/**
 * On Cloud Run, IAM has checked the signature and let in only accounts with the role of an invoker. A token with a signature is checked
 * here in full, with Google's certificates or those of a local cloud. The claims are compared in both cases.
 */
export function openCallers({worker_api, identity, now = Date.now}: Options) {
  const client = memoizeAsync(async () => {
    const {OAuth2Client} = (await import('google-auth-library')).default;
    const {certs} = identity;
    return new OAuth2Client(certs ? {endpoints: {oauth2FederatedSignonPemCertsUrl: certs}} : {});
  });

  async function requireSignature(token: string, audience: string): Promise<void> {
    const opened = await client();
    // An error of this request is no fault of the caller: it asks again.
    const {certs} = await opened.getFederatedSignonCertsAsync();
    try {
      await opened.verifySignedJwtWithCertsAsync(token, certs, audience, [ISSUER]);
    } catch (cause) {
      // The message of the library quotes the token.
      throw new CallerRefused(401, 'the signature of the identity token is not that of its issuer', {cause});
    }
  }

  return async (authorization: string | undefined): Promise<'worker' | 'control'> => {
    const names = ['worker_account', 'control_account', 'ticket_key'] as const;
    const {worker_account, control_account} = required(identity, 'worker-api', names);
    const audience = requireWorkerApi({worker_api}, 'worker-api');
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
    throw new CallerRefused(403, 'the account of the identity token has no business with worker-api');
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

function requireClaims({aud, iss, email_verified, exp, iat}: Claims, audience: string, now_s: number): void {
  const problems = [
    ...(aud === audience ? [] : ['it is for another audience']),
    ...(iss === ISSUER ? [] : ['Google has not issued it']),
    ...(email_verified === true ? [] : ['its e-mail address is not verified']),
    ...(typeof exp === 'number' && now_s <= exp + MOST_SKEW_S ? [] : ['it has expired']),
    ...(typeof iat === 'number' && iat - MOST_SKEW_S <= now_s ? [] : ['it is not valid yet']),
  ];
  if (problems.length > 0)
    throw new CallerRefused(401, `the identity token is refused: ${problems.join(', ')}`);
}
