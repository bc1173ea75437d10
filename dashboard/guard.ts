/** Guards of the pages: the token of the printed address on loopback, and the signed header of IAP on Cloud Run. */
import type {Context, MiddlewareHandler} from 'hono';
import {getCookie, setCookie} from 'hono/cookie';
import {isSameText} from '../shared/contracts/constant-time.ts';
import {CallerRefused} from '../shared/contracts/errors.ts';
import {IAP_HEADER} from './iap.ts';

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

/**
 * Permits the people whom IAP has let pass. `check` throws `CallerRefused` for a header that IAP has not signed. A link of a web page may open
 * a page; nothing else of a web page reads one.
 */
export function behindIap(
  check: (assertion: string | undefined) => Promise<void>,
  refused: (why: string) => void,
): MiddlewareHandler {
  return async (c, next) => {
    const site = c.req.header('sec-fetch-site') ?? 'none';
    if (site !== 'same-origin' && site !== 'none' && c.req.header('sec-fetch-mode') !== 'navigate')
      return c.text(`Refused a request from a web page (Sec-Fetch-Site: ${site})\n`, 403);
    try {
      await check(c.req.header(IAP_HEADER));
    } catch (error) {
      if (!(error instanceof CallerRefused)) throw error;
      refused(error.message);
      return c.text(`Refused: ${error.message}\n`, error.status);
    }
    await next();
    return undefined;
  };
}
