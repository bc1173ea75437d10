/** Tokens with a boundary: Google's token service exchanges the token of this process for one with some of its rights. */
import {ServiceError} from '../contracts/errors.ts';
import type {ObjectRights} from '../domain/requests/object-rights.ts';
import type {AccessToken, ObjectTokens} from '../ports/ports.ts';
import {reasonOf} from './errors.ts';
import {within} from './retry.ts';

/** The agent repeats its request after 30 s. */
const LIMIT_MS = 20_000;
/** The metadata server gives the same token until so long before it expires. */
const RENEWED_MS = 300_000;

const ROLES: Record<ObjectRights['may'], string[]> = {
  get: ['objectViewer'],
  read: ['objectViewer'],
  create: ['objectCreator', 'objectViewer'],
  overwrite: ['objectUser'],
  manage: ['objectUser'],
  see: ['bucketViewer'],
};

type TokenOptions = {
  metadata_host: string;
  /** Account of this process, as the metadata server names it. */
  account: string;
  /** Address of the token service of a local cloud. */
  endpoint: string | undefined;
};

type SourceToken = {access_token: string; expiry_date: number};

type Rule = {
  availableResource: string;
  availablePermissions: string[];
  availabilityCondition: {expression: string};
};

/** Opens the exchange. Errors carry no cause, because those of the library hold the request, which holds a token. */
export function openObjectTokens({metadata_host, account, endpoint}: TokenOptions): ObjectTokens {
  let own: SourceToken | undefined;
  const issue = async (rights: readonly ObjectRights[]) => {
    if (!own || own.expiry_date - Date.now() < RENEWED_MS) own = await ownToken(metadata_host, account);
    return narrow(own, rights, endpoint);
  };
  return {
    issue: async rights => {
      try {
        return await within(LIMIT_MS, issue(rights));
      } catch (error) {
        throw new ServiceError(`Failed to get a token for a lease: ${reasonOf(error)}`);
      }
    },
  };
}

/** Exchanges a token for one with some of its rights. `endpoint`: address of the token service of a local cloud. */
export async function narrow(
  source: SourceToken,
  rights: readonly ObjectRights[],
  endpoint?: string,
): Promise<AccessToken> {
  const {DownscopedClient, OAuth2Client} = (await import('google-auth-library')).default;
  // By default the client refuses a token in its last five minutes, and it reads 0 as the default.
  const authClient = new OAuth2Client({eagerRefreshThresholdMillis: 1});
  authClient.setCredentials(source);
  const accessBoundary = {accessBoundaryRules: rights.map(ruleOf)};
  const client = new DownscopedClient({authClient, credentialAccessBoundary: {accessBoundary}});
  if (endpoint !== undefined) sendTo(client, new URL('/v1/token', endpoint));
  const {token, expirationTime} = await client.getAccessToken();
  if (!token || !expirationTime) throw new Error('the token service answered without a token or its end');
  return {access_token: token, expires_at: new Date(expirationTime).toISOString()};
}

/** The token of the account of this process, from its metadata server, which renews it in time. */
export async function ownToken(metadata_host: string, account: string): Promise<SourceToken> {
  const url = `http://${metadata_host}/computeMetadata/v1/instance/service-accounts/${account}/token`;
  const response = await fetch(url, {headers: {'metadata-flavor': 'Google'}});
  if (!response.ok) throw new Error(`the metadata server answered ${response.status}`);
  const {access_token, expires_in} = (await response.json()) as {access_token: string; expires_in: number};
  return {access_token, expiry_date: Date.now() + expires_in * 1000};
}

/** Sends the exchange to a local cloud; the library can only derive the address from Google's domain. */
function sendTo(client: object, url: URL): void {
  type Interceptors = {request: {add(each: {resolved: (options: object) => Promise<object>}): void}};
  const {stsCredential} = client as {stsCredential: {transporter: {interceptors: Interceptors}}};
  stsCredential.transporter.interceptors.request.add({resolved: async options => ({...options, url})});
}

/** The rule of a boundary. A list names no object, so its condition compares the prefix of the list. */
export function ruleOf({bucket, may, names = [], prefixes = []}: ObjectRights): Rule {
  const place = `projects/_/buckets/${bucket}`;
  const at = (name: string) => JSON.stringify(`${place}/objects/${name}`);
  const listed = "api.getAttribute('storage.googleapis.com/objectListPrefix', '')";
  const lists = may === 'read' || may === 'create' || may === 'manage';
  const conditions = [
    ...(may === 'see' ? [`resource.name == ${JSON.stringify(place)}`] : []),
    ...names.map(name => `resource.name == ${at(name)}`),
    ...prefixes.map(prefix => `resource.name.startsWith(${at(prefix)})`),
    ...(lists ? prefixes.map(prefix => `${listed}.startsWith(${JSON.stringify(prefix)})`) : []),
  ];
  return {
    availableResource: `//storage.googleapis.com/${place}`,
    availablePermissions: ROLES[may].map(role => `inRole:roles/storage.${role}`),
    availabilityCondition: {expression: conditions.join(' || ')},
  };
}
