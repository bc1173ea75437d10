import type {Section} from '../html/feed.ts';
import type {Html} from '../html/html.ts';

/** A part of a page, which changes as a whole. */
export function section(id: string, body: Html): Section {
  return {id, html: String(body)};
}
