/** Identity-Aware Proxy signs a header for every request that it lets pass. */
import {CallerRefused} from '../shared/contracts/errors.ts';
import {type IdentitySettings, required} from '../shared/contracts/identity-settings.ts';
import {partsOf, problemsOf} from '../shared/google/claims.ts';
import {memoizeAsync} from '../shared/google/memoize-async.ts';

export const IAP_HEADER = 'x-goog-iap-jwt-assertion';

const ISSUER = 'https://cloud.google.com/iap';
/** Google's documentation permits so much. */
const MOST_SKEW_S = 30;
/** Google replaces the keys from time to time. */
const KEPT_MS = 3_600_000;
/** An unknown key asks for new keys. Forged headers must not ask each time. */
const ASK_AGAIN_MS = 60_000;

/** PEM by the id of the key. */
type Keys = {[id: string]: string};

/**
 * Checks the header that IAP signs: algorithm, audience, issuer, times and signature. Throws `CallerRefused` for a missing or wrong header, and
 * another error while the keys of IAP cannot be read. Throws `ConfigError` at once without the audience.
 */
export function openIapCheck(identity: IdentitySettings, now: () => number = Date.now) {
  const {iap_audience: audience} = required(identity, 'the pages behind IAP', ['iap_audience']);
  const client = memoizeAsync(async () => {
    const {OAuth2Client} = (await import('google-auth-library')).default;
    const {iap_keys} = identity;
    return new OAuth2Client(iap_keys ? {endpoints: {oauth2IapPublicKeyUrl: iap_keys}} : {});
  });
  let known: Keys = {};
  let read_ms = Number.NEGATIVE_INFINITY;

  async function keysWith(id: string): Promise<Keys> {
    const age_ms = now() - read_ms;
    if (age_ms >= KEPT_MS || (age_ms >= ASK_AGAIN_MS && !Object.hasOwn(known, id))) {
      const {pubkeys} = await (await client()).getIapPublicKeysAsync();
      [known, read_ms] = [pubkeys as Keys, now()];
    }
    return known;
  }

  return async (assertion: string | undefined): Promise<void> => {
    if (!assertion) throw new CallerRefused(401, `the request has no header ${IAP_HEADER}`);
    const {header, claims} = partsOf(assertion);
    const wanted = {audience, setting: 'GLEANER_IAP_AUDIENCE', issuer: ISSUER, most_skew_s: MOST_SKEW_S};
    const problems = [
      ...(header.alg === 'ES256' ? [] : ['it is not signed ES256']),
      ...problemsOf(claims, {...wanted, now_s: now() / 1000}),
    ];
    if (problems.length > 0)
      throw new CallerRefused(401, `the header ${IAP_HEADER} is refused: ${problems.join(', ')}`);
    const keys = await keysWith(String(header.kid));
    try {
      await (await client()).verifySignedJwtWithCertsAsync(assertion, keys, audience, [ISSUER]);
    } catch (cause) {
      // The message of the library quotes the token.
      throw new CallerRefused(401, `the signature of the header ${IAP_HEADER} is not that of IAP`, {cause});
    }
  };
}
