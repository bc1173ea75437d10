/** Guard of the pages on loopback: the token of the printed address, and requests of this page alone. */
import type {Context, MiddlewareHandler} from 'hono';
import {getCookie, setCookie} from 'hono/cookie';
import {isSameText} from '../shared/contracts/constant-time.ts';

const HEADERS: Record<string, string> = {
  'content-security-policy':
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
  'x-content-type-options': 'nosniff',
  'x-robots-tag': 'noindex, nofollow',
  'referrer-policy': 'no-referrer',
  'cross-origin-resource-policy': 'same-origin',
  'cross-origin-opener-policy': 'same-origin',
  'cache-control': 'no-store',
};

/** Sets the headers of every answer, and refuses every request that could change something. */
export function strict(): MiddlewareHandler {
  return async (c, next) => {
    for (const [name, value] of Object.entries(HEADERS)) c.header(name, value);
    if (c.req.method !== 'GET' && c.req.method !== 'HEAD')
      return c.text('A page changes nothing: commands do\n', 405, {allow: 'GET, HEAD'});
    await next();
    return undefined;
  };
}

/**
 * Permits the holder of the token. The address that a command prints has the token once; from then on a cookie has it. Web pages show in the
 * headers Origin and Sec-Fetch-Site, and a rebound DNS name in the header Host.
 */
export function onLoopback({token, port}: {token: string; port: () => number}): MiddlewareHandler {
  return async (c, next) => {
    const why = foreign(c, port());
    if (why) return c.text(`Refused ${why}\n`, 403);
    const cookie = `gleaner_${port()}`;
    const given = c.req.query('token');
    if (given !== undefined && isSameText(given, token)) {
      setCookie(c, cookie, token, {httpOnly: true, sameSite: 'Strict', path: '/'});
      const url = new URL(c.req.url);
      url.searchParams.delete('token');
      return c.redirect(`${url.pathname}${url.search}`, 302);
    }
    if (!isSameText(getCookie(c, cookie) ?? '', token))
      return c.text(
        'Open the address that `gleaner dashboard` has printed: it has the token of this page\n',
        401,
      );
    await next();
    return undefined;
  };
}

function foreign(c: Context, port: number): string | undefined {
  const host = c.req.header('host') ?? '';
  if (host !== `127.0.0.1:${port}` && host !== `localhost:${port}`)
    return `host "${host}": the page answers to 127.0.0.1 and localhost alone`;
  const origin = c.req.header('origin');
  if (origin !== undefined && origin !== `http://${host}`) return `a request from the web page ${origin}`;
  const site = c.req.header('sec-fetch-site');
  if (site !== undefined && site !== 'same-origin' && site !== 'none')
    return `a request from a web page (Sec-Fetch-Site: ${site})`;
  return undefined;
}
