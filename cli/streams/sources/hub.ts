/** Requests to a hub such as huggingface.co, with retries. HF_ENDPOINT names another hub, and HF_TOKEN signs in. */
import {z} from 'zod';
import {requireProxies} from '../../../client/google/proxies.ts';
import {repeatedFetch} from '../../../client/google/repeated-fetch.ts';
import {CliError} from '../../../client/text/errors.ts';
import {bytesText} from '../../../client/text/format.ts';
import {printable} from '../../../shared/contracts/printable.ts';
import {BrokenAnswer, type RetryPolicy, STORAGE_RETRIES} from '../../../shared/google/retry.ts';
import {LIMITS} from './limits.ts';

const DEFAULT_ENDPOINT = 'https://huggingface.co';
/** An answer slower than this has failed. */
const LEAST_BYTES_PER_MS = 50;
const MOST_REDIRECTS = 10;

type HubSettings = {endpoint: string; token: string | undefined; retries: RetryPolicy};

/** Throws `CliError` where a token would travel without encryption. */
export function hubSettings(env: NodeJS.ProcessEnv = process.env): HubSettings {
  const endpoint = (env.HF_ENDPOINT || DEFAULT_ENDPOINT).replace(/\/+$/, '');
  if (endpoint.includes('@'))
    throw new CliError('HF_ENDPOINT has a user or a password: leave them out, and set HF_TOKEN');
  if (!isSafe(endpoint))
    throw new CliError(
      `HF_ENDPOINT is ${endpoint}, which is not an https:// address: correct it, or unset it`,
    );
  if (endpoint.startsWith('https:')) requireProxies(env);
  const token = env.HF_TOKEN?.trim() || undefined;
  if (token !== undefined && !/^[\x21-\x7e]+$/.test(token))
    throw new CliError('HF_TOKEN has characters that no token has: copy the token again, or unset it');
  return {endpoint, token, retries: STORAGE_RETRIES};
}

/** True for https, and for http to this machine. */
function isSafe(address: string | URL): boolean {
  return /^https:\/\/|^http:\/\/(127\.\d+\.\d+\.\d+|localhost|\[::1\])(:|\/|$)/.test(String(address));
}

const sha256 = z.string().regex(/^[0-9a-f]{64}$/);
const sha1 = z.string().regex(/^[0-9a-f]{40}$/);
const listing = z.object({
  sha: sha1,
  siblings: z.array(
    z.object({
      // A path with .. would leave the data set.
      rfilename: z.string().refine(path => !path.split('/').includes('..'), 'a path without ..'),
      size: z.number().int().min(0),
      blobId: sha1.optional(),
      lfs: z.object({sha256: sha256.optional()}).nullish(),
    }),
  ),
});

/** `blob_id`: the digest that git gives a file; undefined for a large file, which has `sha256`. */
export type HubFile = {
  name: string;
  size_bytes: number;
  sha256: string | undefined;
  blob_id: string | undefined;
};
export type Commit = {commit: string; files: HubFile[]};

function commitOf(answer: unknown): Commit {
  const {sha, siblings} = listing.parse(answer);
  const files = siblings.map(({rfilename, size, lfs, blobId}) => ({
    ...{name: rfilename, size_bytes: size},
    ...{sha256: lfs?.sha256, blob_id: lfs ? undefined : blobId},
  }));
  return {commit: sha, files: files.sort((a, b) => (a.name < b.name ? -1 : 1))};
}

export type Hub = ReturnType<typeof openHub>;

/** Hub of one command. `kind` is the word of errors. */
export function openHub({endpoint, token, retries}: HubSettings, kind: 'data set' | 'model' = 'data set') {
  const get = async <T>(
    path: string,
    what: string,
    {bytes = 0, ...headers}: {bytes?: number; range?: string},
    stop: AbortSignal | undefined,
    read: (answer: Response) => Promise<T>,
  ): Promise<T> => {
    const limit_ms = retries.silence_ms + Math.ceil(bytes / LEAST_BYTES_PER_MS);
    try {
      return await repeatedFetch(retries, limit_ms, stop, async signal =>
        read(await follow({endpoint, token}, path, headers, signal)),
      );
    } catch (error) {
      stop?.throwIfAborted();
      if (error instanceof CliError) throw error;
      const advice = adviceOn(error as Error, kind, token !== undefined);
      throw new CliError(`Failed to read ${what} from ${endpoint}: ${advice}`, {cause: error});
    }
  };
  return {
    endpoint,
    /** Files of a revision in the order of their names; undefined where the revision does not exist. */
    async commit(
      kind: 'datasets' | 'models',
      id: string,
      revision: string,
      stop?: AbortSignal,
    ): Promise<Commit | undefined> {
      const path = `/api/${kind}/${id}/revision/${encodeURIComponent(revision)}?blobs=true`;
      return get(path, id, {}, stop, async answer => {
        if (answer.status === 404) return undefined;
        requireOk(answer, await errorOf(answer));
        const text = await textOf(answer, id, LIMITS.answer_bytes);
        try {
          return commitOf(JSON.parse(text));
        } catch (cause) {
          throw new CliError(
            `Failed to read ${id} from ${endpoint}: the answer is not a list of files; check HF_ENDPOINT`,
            {cause},
          );
        }
      });
    },
    /** Bytes `start` to `end` (half open) of a file. */
    async range(path: string, what: string, start: number, end: number, stop?: AbortSignal) {
      const asked = {range: `bytes=${start}-${end - 1}`, bytes: end - start};
      return get(path, what, asked, stop, async answer => {
        requireOk(answer, await errorOf(answer));
        // A hub sends a small file whole.
        if (start === 0 && answer.status === 200 && Number(answer.headers.get('content-length')) === end)
          return contentOf(answer, what, end);
        const [, from] = /^bytes (\d+)-/.exec(answer.headers.get('content-range') ?? '') ?? [];
        if (answer.status !== 206 || Number(from) !== start)
          throw new CliError(
            `Failed to read ${what}: the hub sends no parts of files; download the file first`,
          );
        const bytes = await contentOf(answer, what, end - start);
        if (bytes.byteLength !== end - start)
          throw new BrokenAnswer(`${bytes.byteLength} of ${end - start} bytes came`);
        return bytes;
      });
    },
    /** Text of a file. Throws `CliError` for a file that is larger than `most` bytes. */
    text: (path: string, what: string, most: number, stop?: AbortSignal) =>
      get(path, what, {bytes: most}, stop, async answer => {
        requireOk(answer, await errorOf(answer));
        return textOf(answer, what, most);
      }),
  };
}

/** The answer behind all redirects. The token goes to the hub alone, and an encrypted hub leads to no address without encryption. */
async function follow(
  hub: Pick<HubSettings, 'endpoint' | 'token'>,
  path: string,
  headers: Record<string, string>,
  signal: AbortSignal,
): Promise<Response> {
  const own = new URL(hub.endpoint);
  let at = new URL(`${hub.endpoint}${path}`);
  for (let hop = 0; hop <= MOST_REDIRECTS; hop++) {
    const token = at.origin === own.origin ? hub.token : undefined;
    const signed = token === undefined ? headers : {...headers, authorization: `Bearer ${token}`};
    const answer = await fetch(at, {headers: signed, signal, redirect: 'manual'});
    const location = answer.headers.get('location');
    if (answer.status < 300 || answer.status > 399 || location === null) return answer;
    await answer.body?.cancel();
    const next = URL.canParse(location, at.href) ? new URL(location, at) : undefined;
    if (!next || !isSafe(next) || (own.protocol === 'https:' && next.protocol !== 'https:'))
      throw new CliError(
        `Failed to read from the hub: it redirects to ${printable(location).slice(0, 200)}, which is not an https:// address`,
      );
    // `fetch` takes no user and no password.
    [next.username, next.password] = ['', ''];
    at = next;
  }
  throw new CliError('Failed to read from the hub: it redirects without end');
}

function adviceOn({message, code}: Error & {code?: unknown}, kind: string, hasToken: boolean): string {
  if (code === 401)
    return hasToken
      ? `${message}; the hub does not accept HF_TOKEN, or the ${kind} does not exist`
      : `${message}; the ${kind} does not exist, or is private or gated: set HF_TOKEN to a token that may read it`;
  if (code === 403)
    return `${message}; accept the conditions on the page of the ${kind}, and set HF_TOKEN to a token of that account`;
  if (code === 404) return `${message}; check the name and --revision`;
  return `${message}; check the network and HF_ENDPOINT, or try again later`;
}

async function textOf(answer: Response, what: string, most: number): Promise<string> {
  return Buffer.from(await contentOf(answer, what, most)).toString('utf8');
}

/** The content of an answer. Ends the answer with `CliError` where it has more than `most` bytes. */
async function contentOf(answer: Response, what: string, most: number): Promise<ArrayBuffer> {
  const parts: Uint8Array[] = [];
  let bytes = 0;
  for await (const part of answer.body ?? []) {
    bytes += part.length;
    if (bytes > most)
      throw new CliError(`Failed to read ${what}: the hub sends more than ${bytesText(most)}`);
    parts.push(part);
  }
  return new Uint8Array(Buffer.concat(parts)).buffer;
}

async function errorOf(answer: Response): Promise<string> {
  if (answer.ok) return '';
  const text = await textOf(answer, 'the error', LIMITS.error_bytes).catch(() => '');
  const reason = answer.headers.get('x-error-message') ?? /"error"\s*:\s*"([^"]{1,300})"/.exec(text)?.[1];
  return `${answer.status} ${reason ?? answer.statusText}`.trim();
}

function requireOk(answer: Response, problem: string): void {
  if (!answer.ok) throw Object.assign(new Error(problem), {code: answer.status});
}
