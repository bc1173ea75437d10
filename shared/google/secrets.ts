/** Adapter of Secret Manager: one request with the token of this process. */
import {ServiceError} from '../contracts/errors.ts';
import type {Secrets} from '../ports/ports.ts';
import {reasonOf} from './errors.ts';
import {ownToken} from './object-tokens.ts';

/** The agent repeats its request after 30 s. */
const LIMIT_MS = 10_000;
export const SECRET_READER = 'roles/secretmanager.secretAccessor';

type Options = {
  metadata_host: string;
  /** Account of this process, as the metadata server names it. */
  account: string;
  /** The same account as a member of a policy. */
  member: string;
  /** Address of a local cloud. */
  endpoint: string | undefined;
};

type Payload = {payload?: {data?: string; dataCrc32c?: string}};

export function openSecrets({metadata_host, account, member, endpoint}: Options): Secrets {
  const address = (endpoint ?? 'https://secretmanager.googleapis.com').replace(/\/+$/, '');
  return {
    read: async (name, setting) => {
      const [, project, , secret] = name.split('/');
      const version = name.includes('/versions/') ? name : `${name}/versions/latest`;
      const later = (why: string) =>
        new ServiceError(`Failed to read the secret ${version}: ${why}; try again later`);
      // No error has a cause: those of a request hold its token.
      const token = await ownToken(metadata_host, account).catch(error => {
        throw later(reasonOf(error));
      });
      const response = await fetch(`${address}/v1/${version}:access`, {
        headers: {authorization: `Bearer ${token.access_token}`},
        redirect: 'manual',
        signal: AbortSignal.timeout(LIMIT_MS),
      }).catch(error => {
        throw later(`Secret Manager does not answer (${(error as Error).name})`);
      });
      const {status} = response;
      const problem = (remedy: string) => ({problem: `worker-api may not read ${version}: ${remedy}`});
      if (status === 401 || status === 403) return problem(grantLine(secret, project, member));
      if (status === 404)
        return problem(`there is no such secret or version; create it, or correct ${setting}`);
      if (status === 400) return problem('that version is disabled or destroyed; add a new one');
      if (status !== 200) throw later(`Secret Manager answers ${status}`);
      const {payload} = (await response.json().catch(() => ({}))) as Payload;
      const bytes = Buffer.from(payload?.data ?? '', 'base64');
      const {CRC32C} = await import('@google-cloud/storage');
      const sum = new CRC32C();
      sum.update(bytes);
      if (payload?.dataCrc32c !== String(sum.valueOf() >>> 0))
        throw later('its bytes do not match their checksum');
      return textOf(bytes) ?? problem('it is no UTF-8 text without zero bytes; add a version that is one');
    },
  };
}

/** The command that gives a member the right to read a secret. */
export function grantLine(secret = '', project = '', member = ''): string {
  return `gcloud secrets add-iam-policy-binding ${secret} --project=${project} --member=${member} --role=${SECRET_READER}`;
}

function textOf(bytes: Buffer): {text: string} | undefined {
  try {
    const text = new TextDecoder('utf-8', {fatal: true, ignoreBOM: true}).decode(bytes);
    return text.includes('\0') ? undefined : {text: text.replace(/\r?\n$/, '')};
  } catch {
    return undefined;
  }
}
