/** Callers of worker-api: checks the identity token of a request, and says which account it proves. */
import {type Config, requireWorkerApi} from '../contracts/config.ts';
import {CallerRefused} from '../contracts/errors.ts';
import {required} from '../contracts/identity-settings.ts';
import {type Claims, partsOf, problemsOf, quoted} from './claims.ts';
import {memoizeAsync} from './memoize-async.ts';

const ISSUER = 'https://accounts.google.com';
const MOST_SKEW_S = 60;
/** Cloud Run writes this text in place of the signature that it has checked. */
const REMOVED = 'SIGNATURE_REMOVED_BY_GOOGLE';

type Options = Pick<Config, 'worker_api' | 'identity'> & {now?: () => number};

/** Settings that prove a caller. Throws `ConfigError`, which names each missing variable. */
export function requireVerifier({worker_api, identity}: Pick<Config, 'worker_api' | 'identity'>) {
  const names = ['worker_account', 'control_account', 'ticket_key'] as const;
  const {worker_account, control_account} = required(identity, 'worker-api', names);
  return {worker_account, control_account, audience: requireWorkerApi({worker_api}, 'worker-api')};
}

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
    const {worker_account, control_account, audience} = requireVerifier({worker_api, identity});
    const token = /^Bearer ([\w-]+\.[\w-]+\.[\w-]+)$/i.exec(authorization ?? '')?.[1];
    if (!token) throw new CallerRefused(401, 'the request has no identity token');
    const {header, claims, signature} = partsOf(token);
    if (header.alg !== 'RS256') throw new CallerRefused(401, 'the identity token is not signed RS256');
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

function requireClaims(claims: Claims, audience: string, now_s: number): void {
  const setting = 'GLEANER_WORKER_API of worker-api';
  const problems = [
    ...problemsOf(claims, {audience, setting, issuer: ISSUER, most_skew_s: MOST_SKEW_S, now_s}),
    ...(claims.email_verified === true ? [] : ['its e-mail address is not verified']),
  ];
  if (problems.length > 0)
    throw new CallerRefused(401, `the identity token is refused: ${problems.join(', ')}`);
}
