/** Identity tokens of a local cloud in Google's format: its key, its certificates, and the accounts that Cloud Run lets in. */
import {
  createHash,
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  type KeyObject,
  randomBytes,
  sign,
  verify,
} from 'node:crypto';
import {join} from 'node:path';
import {nameIn} from '../../shared/domain/deployment.ts';
import type {Role} from './access-tokens.ts';
import {certificateOf} from './certificate.ts';
import type {Route} from './http.ts';
import {privateFile} from './private-file.ts';

/** Path of the certificates that verify identity tokens. */
export const CERTS_PATH = '/oauth2/v1/certs';

const ISSUER = 'https://accounts.google.com';
const LIFE_S = 3600;

/** Addresses of the accounts of a deployment. */
export function accountsOf(project: string, deployment: string): Record<Role, string> {
  return {
    worker: `${deployment}-worker@${project}.iam.gserviceaccount.com`,
    control: `${deployment}-control@${project}.iam.gserviceaccount.com`,
    'worker-api': `${deployment}-worker-api@${project}.iam.gserviceaccount.com`,
  };
}

/** Deployment and role of an account; no role if the account belongs to no deployment. */
export function roleOf(
  project: string,
  deployments: readonly string[],
  email: string,
): {role?: Role; deployment: string} {
  for (const deployment of deployments) {
    const accounts = accountsOf(project, deployment);
    const role = (Object.keys(accounts) as Role[]).find(each => accounts[each] === email);
    if (role) return {role, deployment};
  }
  return {deployment: ''};
}

/** Accounts that may call the HTTP function at a path such as `/functions/other-worker-api`: those of its own deployment. */
export function invokersOf(
  project: string,
  deployments: readonly string[],
  functions: readonly string[],
): (path: string) => string[] {
  const accounts = new Map<string, string[]>(
    deployments.flatMap(deployment => {
      const {worker, control} = accountsOf(project, deployment);
      return functions.map(
        name => [`/functions/${nameIn(deployment, name)}`, [worker, control]] as [string, string[]],
      );
    }),
  );
  return path => accounts.get(path) ?? [];
}

/** Google's number of an account, the subject of its tokens. */
function numberOf(email: string): string {
  const digits = BigInt(`0x${createHash('sha256').update(email).digest('hex')}`).toString();
  return `1${digits.slice(0, 20)}`;
}

type Claims = {[claim: string]: unknown};

function decoded(part: string): Claims {
  return JSON.parse(Buffer.from(part, 'base64url').toString());
}

export class Identities {
  readonly #key: KeyObject;
  readonly #public: KeyObject;
  readonly #certificate: string;
  readonly #id: string;
  /** Key of the tickets of the deployment, kept as Secret Manager would. */
  readonly ticket_key: string;

  /** Keeps the keys in the folder of the cloud, so that tokens and tickets of VMs stay valid after a restart. */
  constructor(dir: string) {
    const pem = privateFile(join(dir, 'identity-key.pem'), /^-----BEGIN PRIVATE KEY-----/, () => {
      const {privateKey} = generateKeyPairSync('rsa', {modulusLength: 2048});
      return privateKey.export({type: 'pkcs8', format: 'pem'}).toString();
    });
    this.ticket_key = privateFile(join(dir, 'ticket-key'), /^[0-9a-f]{64}$/, () =>
      randomBytes(32).toString('hex'),
    );
    this.#key = createPrivateKey(pem);
    this.#public = createPublicKey(this.#key);
    this.#certificate = certificateOf(this.#key, 'local cloud');
    this.#id = createHash('sha1').update(this.#certificate).digest('hex');
  }

  /** Token of an account. `more` are the claims of a VM; if there are any, the e-mail address is included, as at Google. */
  token(email: string, audience: string, more?: Claims): string {
    const now_s = Math.floor(Date.now() / 1000);
    const number = numberOf(email);
    return this.sign({
      aud: audience,
      azp: number,
      ...(more ? {email, email_verified: true} : {}),
      exp: now_s + LIFE_S,
      ...more,
      iat: now_s,
      iss: ISSUER,
      sub: number,
    });
  }

  sign(claims: Claims): string {
    const header = {alg: 'RS256', kid: this.#id, typ: 'JWT'};
    const text = [header, claims].map(part => Buffer.from(JSON.stringify(part)).toString('base64url'));
    const signature = sign('sha256', Buffer.from(text.join('.')), this.#key).toString('base64url');
    return [...text, signature].join('.');
  }

  /** Account of a valid token for the audience, and the id of its VM (empty if there is none); undefined for an invalid token. */
  callerOf(token: string, audience: string): {email: string; vm: string} | undefined {
    const [header = '', payload = '', signature = ''] = token.split('.');
    const signed = Buffer.from(`${header}.${payload}`);
    if (!verify('sha256', signed, this.#public, Buffer.from(signature, 'base64url'))) return undefined;
    const {aud, exp, iat, iss, email, email_verified, google} = decoded(payload);
    const isInTime = Number(iat) * 1000 <= Date.now() && Date.now() < Number(exp) * 1000;
    const isOfGoogle = decoded(header).alg === 'RS256' && iss === ISSUER && email_verified === true;
    if (!isOfGoogle || !isInTime || aud !== audience) return undefined;
    const {compute_engine} = (google ?? {}) as {compute_engine?: {instance_id?: string}};
    return {email: String(email), vm: compute_engine?.instance_id ?? ''};
  }

  /** Certificates at the path of `www.googleapis.com`, as PEM by key id. */
  routes(): Route[] {
    const headers = {'cache-control': 'public, max-age=3600'};
    return [['GET', CERTS_PATH, () => ({headers, json: {[this.#id]: this.#certificate}})]];
  }
}
