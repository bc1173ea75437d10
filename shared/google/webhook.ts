/** Adapter of the receiver of notifications: one POST that follows no redirect and does not trust the answer. */
import {Undelivered} from '../contracts/errors.ts';
import {printable} from '../contracts/printable.ts';
import {signedHeaders} from '../contracts/settings/webhook.ts';
import type {Now, Webhook} from '../ports/ports.ts';

const TIMEOUT_MS = 10_000;
/** Bytes of an answer to show to a person; no more are read. */
const MOST_ANSWER = 200;
/** Refusals that are not about the notification: the receiver is slow, busy or down. */
const LATER = [408, 425, 429];

export function openWebhook({url, key, now}: {url: string; key: string | undefined; now: Now}): Webhook {
  const {host} = new URL(url);
  return {
    post: async (id, body) => {
      const signed = key === undefined ? {} : signedHeaders(id, body, key, now());
      const response = await fetch(url, {
        method: 'POST',
        redirect: 'manual',
        headers: {'content-type': 'application/json', 'user-agent': 'gleaner', ...signed},
        body,
        signal: AbortSignal.timeout(TIMEOUT_MS),
      }).catch(cause => {
        throw new Undelivered(false, `${host} does not answer: ${causeOf(cause)}`, {cause});
      });
      const text = await beginOf(response);
      const {ok, status} = response;
      if (ok) return;
      if (status >= 300 && status < 400)
        throw new Undelivered(true, `${host} answered ${status}: a redirect is not followed`);
      const refused = status >= 400 && status < 500 && !LATER.includes(status);
      throw new Undelivered(refused, `${host} answered ${status}${text && `: ${text}`}`);
    },
  };
}

/** The name of the failure only, because a message of the client may contain the address. */
function causeOf(error: unknown): string {
  const {name, cause} = error as Error & {cause?: {code?: string}};
  return cause?.code ?? name;
}

async function beginOf({body}: Response): Promise<string> {
  if (!body) return '';
  const reader = body.getReader();
  const bytes: Uint8Array[] = [];
  try {
    for (let size = 0; size < MOST_ANSWER; ) {
      const {done, value} = await reader.read();
      if (done) break;
      bytes.push(value);
      size += value.length;
    }
  } catch {
    // The status is enough.
  } finally {
    await reader.cancel().catch(() => {});
  }
  const text = Buffer.concat(bytes).subarray(0, MOST_ANSWER).toString('utf8').trim();
  return printable(text.replace(/\s+/g, ' '));
}
