/** Secret Manager: `accessSecretVersion` of secrets whose versions are private files in the folder of the cloud. */
import {lstatSync, readdirSync} from 'node:fs';
import {join} from 'node:path';
import {ApiError} from './http/errors.ts';
import {unauthenticated} from './http/guard.ts';
import type {Request, Route} from './http/http.ts';
import type {JsonObject} from './http/json.ts';
import {readPrivate} from './http/private-file.ts';
import {Crc32c} from './storage/crc32c.ts';

/** Accounts with the role secretAccessor, by the name of the secret, `projects/P/secrets/S`. */
export type SecretReaders = Readonly<Record<string, readonly string[]>>;

const MOST_BYTES = 64 << 10;
const VERSION = /^[1-9][0-9]{0,8}$/;

/** File of a version of a secret. */
export function secretFile(dir: string, secret: string, version: string): string {
  return join(dir, 'secrets', secret, version);
}

/** Number of the newest version of a secret; undefined without one. */
function latestVersion(dir: string, secret: string): string | undefined {
  const folder = join(dir, 'secrets', secret);
  const names = lstatSync(folder, {throwIfNoEntry: false})?.isDirectory() ? readdirSync(folder) : [];
  return names
    .filter(name => VERSION.test(name))
    .sort((a, b) => Number(a) - Number(b))
    .at(-1);
}

/** Only the access token of an account identifies a reader; the token of the cloud belongs to no account. */
export function secretRoutes(dir: string, readers: SecretReaders = {}): Route[] {
  const access = ({params, caller}: Request): {json: JsonObject} => {
    const {project, secret = '', version = ''} = params;
    if (caller === undefined || caller === 'cloud') throw unauthenticated();
    const resource = `projects/${project}/secrets/${secret}`;
    const asked = `${resource}/versions/${version}`;
    const granted = Object.hasOwn(readers, resource) ? readers[resource] : undefined;
    if (!/^[A-Za-z0-9_-]{1,255}$/.test(secret) || !granted?.includes(caller.email))
      throw new ApiError(
        403,
        `Permission 'secretmanager.versions.access' denied for resource '${asked}' (or it may not exist).`,
      );
    const number = version === 'latest' ? latestVersion(dir, secret) : version;
    const text =
      number !== undefined && VERSION.test(number) ? readPrivate(secretFile(dir, secret, number)) : undefined;
    if (text === undefined) throw new ApiError(404, `Secret Version [${asked}] not found.`);
    const bytes = Buffer.from(text);
    if (bytes.length > MOST_BYTES)
      throw new ApiError(400, `Secret Version [${asked}] is larger than 64 KiB.`);
    const payload = {data: bytes.toString('base64'), dataCrc32c: checksumOf(bytes)};
    return {json: {name: `projects/1/secrets/${secret}/versions/${number}`, payload}};
  };
  return [['GET', '/v1/projects/{project}/secrets/{secret}/versions/{version}:access', access]];
}

/** A 64-bit integer is text in Google's JSON. */
function checksumOf(bytes: Buffer): string {
  const crc = new Crc32c();
  crc.update(bytes);
  return String(crc.value());
}
