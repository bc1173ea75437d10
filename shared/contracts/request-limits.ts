/**
 * Limits of a request to worker-api. An agent sends some kilobytes of JSON, and at the end of a job a result of up to 256 KiB, each byte of
 * which JSON may escape as six.
 */

const MOST_BYTES = 2 * 1024 * 1024;

type Request = {get(header: string): string | undefined; rawBody?: Uint8Array};

/** Why the request is refused before its content is read; undefined for a request within the limits. */
export function requestProblem(request: Request): {status: 413 | 415; error: string} | undefined {
  if ((request.rawBody?.length ?? 0) > MOST_BYTES)
    return {status: 413, error: `the request is larger than ${MOST_BYTES} bytes`};
  if (/^application\/json *(;|$)/i.test(request.get('content-type') ?? '')) return undefined;
  return {status: 415, error: 'the request is not JSON: send Content-Type: application/json'};
}
