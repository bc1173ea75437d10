import type {Section} from '../feed.ts';
import type {Html} from '../html.ts';

/** A part of a page, which changes as a whole. */
export function section(id: string, body: Html): Section {
  return {id, html: String(body)};
}
