import type {IncomingHttpHeaders} from 'node:http';
import {ApiError} from './errors.ts';

/**
 * Refuses requests of web pages, because a page in the user's browser can reach 127.0.0.1 too. The headers Origin and Sec-Fetch-Site reveal a
 * page, and the header Host reveals a rebound DNS name.
 */
export function refusePages(headers: IncomingHttpHeaders): void {
  const {host, origin, 'sec-fetch-site': site} = headers;
  if (host !== undefined && !/^(127\.\d+\.\d+\.\d+|localhost|\[::1\])(:\d+)?$/i.test(host))
    throw new ApiError(
      403,
      `Refused host "${host}": the local cloud answers to 127.0.0.1 and localhost only`,
    );
  if (origin !== undefined && origin !== `http://${host}`)
    throw new ApiError(
      403,
      `Refused a request from the web page ${origin}: it is not part of the local cloud`,
    );
  if (site !== undefined && site !== 'same-origin' && site !== 'none')
    throw new ApiError(403, `Refused a request from a web page (Sec-Fetch-Site: ${site})`);
}
