/** URLs that carry the token in their path, for Google clients that send no credentials to an emulator. */

/** Address of the cloud with the token in its path. */
export function urlWithToken(url: string, token: string): string {
  return `${url}/as/${token}`;
}

/** Splits a path into its token (undefined if there is none) and the rest of the path. */
export function splitTokenPath(path: string): {token: string | undefined; path: string} {
  const [, token, rest] = /^\/as\/([^/]*)(\/.*)?$/s.exec(path) ?? [];
  return token === undefined ? {token, path} : {token, path: rest ?? '/'};
}
