/** The frame of a file that a person mails: its style is inside, and its policy allows nothing else. */
import {hash} from 'node:crypto';
import {readFileSync} from 'node:fs';
import {raw} from 'hono/html';
import {utcText} from '../../shared/domain/time.ts';
import {type Html, html, type Part} from '../html/html.ts';

const STYLES = ['style.css', 'report.css'];

/** `title`: also the name of a tab and of a print. `at`: when the file was made. */
export type Frame = {title: string; at: string; made_by: string};

/** The whole file. It asks for nothing: `default-src 'none'`, and the style by its hash. */
export function file({title, at, made_by}: Frame, body: readonly Part[]): string {
  const style = STYLES.map(name => readFileSync(new URL(`../static/${name}`, import.meta.url), 'utf8')).join(
    '',
  );
  const policy = `default-src 'none'; style-src 'sha256-${hash('sha256', style, 'base64')}'; base-uri 'none'; form-action 'none'`;
  const page = html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${raw(policy)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="color-scheme" content="light dark">
<title>${title}</title>
<style>${raw(style)}</style>
</head>
<body class="report">
<main>
${body}
</main>
<footer>Made by <code>${made_by}</code> at ${utcText(at)}. This file loads nothing.</footer>
</body>
</html>
`;
  return String(page);
}

/** A part of a page for a file that stands alone: without links and options of this machine, with whole times and open details. */
export function still(shown: Html): Html {
  const alone = String(shown)
    .replace(/<p><a\b[^>]*>[^<]*<\/a><\/p>/g, '')
    .replace(/<a\b[^>]*>|<\/a>/g, '')
    .replace(/<time\b[^>]* title="([^"]*)">[^<]*<\/time>/g, '$1')
    .replace(/(<code class="command">[^<]*?) --(?:dir|port) [\w./-]+/g, '$1')
    .replaceAll('<details>', '<details open>');
  return html`<section>${raw(alone)}</section>\n`;
}

/** A part of the report with its title. */
export function part(title: string, body: Part): Html {
  return html`<section><h2>${title}</h2>${body}</section>\n`;
}

/** A checksum or a name that a program compares: it breaks anywhere. */
export function exact(text: string | null | undefined): Part {
  return text ? html`<code class="exact">${text}</code>` : '';
}

/** A command without the options of the cloud on which the file was made: its reader has another. */
export function line(text: string): Html {
  return html`<code class="command">${text}</code>`;
}
