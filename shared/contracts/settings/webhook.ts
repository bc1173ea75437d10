/** Notifications as a receiver gets them: allowed addresses, bodies in two formats, and the signature of Standard Webhooks. */
import {createHmac} from 'node:crypto';
import {isIP} from 'node:net';
import type {Notice} from '../../domain/notices/notice.ts';
import {printable} from '../printable.ts';

export const LEAST_KEY_CHARS = 24;

export type NotifyFormat = 'json' | 'slack';

const LOOPBACK = ['127.0.0.1', 'localhost', '[::1]'];
/** Names that only a private network resolves, including the metadata server of Google Cloud. */
const PRIVATE = /(^|[.])(localhost|local|internal|localdomain|home[.]arpa)$/;

/** Why notifications may not go to the address; undefined if they may. The text quotes nothing of the address, which may be a secret. */
export function receiverProblem(address: string, isLocalCloud: boolean): string | undefined {
  const url = URL.parse(address);
  if (!url || url.username || url.password || url.hash)
    return 'an https address such as https://hooks.example.com/gleaner, without a user';
  const {protocol, hostname} = url;
  if (isLocalCloud && LOOPBACK.includes(hostname) && /^https?:$/.test(protocol)) return undefined;
  if (protocol !== 'https:')
    return isLocalCloud ? 'an address with https, or one of this machine' : 'an address with https';
  const name = hostname.replace(/[.]$/, '');
  if (isIP(name.replace(/^\[|\]$/g, '')) || !name.includes('.') || PRIVATE.test(name))
    return 'an address with a public name, such as https://hooks.example.com/gleaner';
  return undefined;
}

/**
 * Headers of Standard Webhooks (standardwebhooks.com): a receiver checks the HMAC-SHA256 of id, time and body, refuses an old time, and drops
 * an id that it knows. A key `whsec_…` is base64 for its bytes; any other key is used as text.
 */
export function signedHeaders(id: string, body: string, key: string, now: number): Record<string, string> {
  const timestamp = String(Math.floor(now / 1000));
  const bytes = key.startsWith('whsec_') ? Buffer.from(key.slice('whsec_'.length), 'base64') : key;
  const signature = createHmac('sha256', bytes).update(`${id}.${timestamp}.${body}`).digest('base64');
  return {'webhook-id': id, 'webhook-timestamp': timestamp, 'webhook-signature': `v1,${signature}`};
}

const MOST_REASON = 1000;

type From = {project: string; deployment: string};

export function noticeBody(format: NotifyFormat, id: string, notice: Notice, from: From): string {
  const reason = notice.reason === null ? null : line(notice.reason).slice(0, MOST_REASON).toWellFormed();
  const told = {text: line(notice.text), reason};
  return JSON.stringify(
    format === 'slack' ? slackMessage(told, notice, from) : jsonMessage(id, told, notice, from),
  );
}

type Told = {text: string; reason: string | null};

function jsonMessage(id: string, told: Told, {type, at, facts}: Notice, {project, deployment}: From) {
  return {type, timestamp: at, id, data: {project, deployment, ...told, ...facts}};
}

/**
 * Plain text only: no markup, mention, link or preview, whatever a name contains. `text` is for programs that show no blocks, and for the one
 * line on a phone.
 */
function slackMessage({text, reason}: Told, {facts}: Notice, {project, deployment}: From) {
  const plain = (words: string) => ({type: 'plain_text', text: escaped(words), emoji: false});
  const foot = [`${deployment} in ${project}`, ...factTexts(facts)].join('  ·  ');
  return {
    text: escaped(reason === null ? text : `${text}: ${reason}`),
    ...{mrkdwn: false, parse: 'none', link_names: false, unfurl_links: false, unfurl_media: false},
    blocks: [
      {type: 'section', text: plain(text)},
      ...(reason === null ? [] : [{type: 'section', text: plain(reason)}]),
      {type: 'context', elements: [plain(foot)]},
    ],
  };
}

function factTexts({streams, streams_completed, streams_failed, spent_usd, budget_usd}: Notice['facts']) {
  const failed = Number(streams_failed ?? 0) > 0 ? `, ${streams_failed} failed` : '';
  return [
    ...(typeof streams === 'number'
      ? [`${streams_completed} of ${streams} streams are completed${failed}`]
      : []),
    ...(typeof spent_usd === 'number'
      ? [`$${spent_usd.toFixed(2)}${typeof budget_usd === 'number' ? ` of $${budget_usd.toFixed(2)}` : ''}`]
      : []),
  ];
}

/** Slack treats these three characters as the start of mentions, links and entities. */
function escaped(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
}

const line = (text: string) => printable(text.replace(/\s+/g, ' '));
