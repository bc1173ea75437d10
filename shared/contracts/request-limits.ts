/** Limits of a request to worker-api. An agent sends at most some kilobytes of JSON. */

const MOST_BYTES = 256 * 1024;

type Request = {get(header: string): string | undefined; rawBody?: Uint8Array};

/** Why the request is refused before its content is looked at; undefined for a request within the limits. */
export function whyNotRead(request: Request): {status: 413 | 415; error: string} | undefined {
  if ((request.rawBody?.length ?? 0) > MOST_BYTES)
    return {status: 413, error: `the request is larger than ${MOST_BYTES} bytes`};
  if (/^application\/json *(;|$)/i.test(request.get('content-type') ?? '')) return undefined;
  return {status: 415, error: 'the request is not JSON: send Content-Type: application/json'};
}
