/** Documents as they are stored, each field with its meaning. */
import type {Column} from '../../client/text/format.ts';
import type {CollectionView, DocumentView, FieldView} from '../../client/views/documents.ts';
import type {Value} from '../../shared/ports/ports.ts';
import {type Section, section} from '../html/feed.ts';
import {address, empty, type Html, html, link, type Part, table} from '../html/html.ts';

export function collectionsPage(names: readonly string[]): Section[] {
  return [
    section(
      'head',
      html`<h1>Documents</h1><p class="quiet">What the console of Firestore shows, each field with its meaning.</p>`,
    ),
    section(
      'list',
      html`<ul class="plain">${names.map(name => html`<li>${link(address('documents', name), name)}</li>`)}</ul>`,
    ),
  ];
}

function trail(path: string): Html {
  const parts = path.split('/');
  return html`<h1 class="trail">${link('/documents', 'Documents')}${parts.map(
    (part, index) =>
      html` / ${index === parts.length - 1 ? part : link(address('documents', ...parts.slice(0, index + 1)), part)}`,
  )}</h1>`;
}

export function collectionPage({path, ids, next}: CollectionView): Section[] {
  const list = html`<ul class="plain columns">${ids.map(id => html`<li>${link(address('documents', ...path.split('/'), id), id)}</li>`)}</ul>${
    next === null
      ? ''
      : html`<p>${link(`${address('documents', ...path.split('/'))}?after=${encodeURIComponent(next)}`, 'Further documents')}</p>`
  }`;
  return [section('head', trail(path)), section('list', ids.length > 0 ? list : empty('No document.'))];
}

export function documentPage({path, fields, below}: DocumentView): Section[] {
  const columns: Column<FieldView, Part>[] = [
    {title: 'Field', cell: ({name}) => html`<code>${name}</code>`},
    {title: 'Value', cell: ({value}) => valueText(value)},
    {title: 'Meaning', cell: meaningOf},
  ];
  const body = fields === null ? empty('There is no such document.') : table('Fields', columns, fields);
  const more = below.map(each => html`<li>${link(address('documents', ...each.split('/')), each)}</li>`);
  return [
    section('head', trail(path)),
    section('fields', body),
    section('below', more.length > 0 ? html`<h2>Below it</h2><ul class="plain">${more}</ul>` : html``),
  ];
}

function meaningOf({meaning, type}: FieldView): Html {
  const known = meaning === null ? html`<span class="quiet">no meaning is known</span>` : sentenceOf(meaning);
  return html`${known} ${type === null ? '' : html`<small>${type.replaceAll('`', '')}</small>`}`;
}

const MOST_CHARS = 4000;

function valueText(value: Value): Html {
  if (value === null) return html`<span class="quiet">null</span>`;
  if (typeof value !== 'object')
    return html`<span class="value">${String(value).slice(0, MOST_CHARS)}</span>`;
  const text = JSON.stringify(value, null, 2);
  if (text.length <= 60) return html`<span class="value">${JSON.stringify(value)}</span>`;
  return html`<details><summary>${Array.isArray(value) ? `${value.length} entries` : `${Object.keys(value).length} fields`}</summary><pre>${text.slice(0, MOST_CHARS)}</pre></details>`;
}

/** The words of a meaning in Markdown: code between backticks, and the text of a link. */
function sentenceOf(meaning: string): Html {
  const plain = meaning.replaceAll(/\[([^\]]+)\]\([^)]*\)/g, '$1');
  return html`${plain.split('`').map((part, index) => (index % 2 === 1 ? html`<code>${part}</code>` : part))}`;
}
