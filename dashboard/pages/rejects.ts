/** Rejected lines of a stream, with the reason of each. */
import {type Column, counted, numberText} from '../../client/text/format.ts';
import type {Rejects} from '../../client/views/run-page.ts';
import {type Html, html, link, table} from '../html/html.ts';

/** `all`: address of a page with more of them; null on that page. */
export function rejectedLines({stream, object, lines, more}: Rejects, all: string | null): Html {
  if (lines.length === 0)
    return html`<p class="quiet">${counted(more ?? 0, 'rejected sample')}; <code>${object}</code> says why.</p>`;
  const hasMany = lines.some(({samples}) => samples > 1);
  const columns: Column<Rejects['lines'][number]>[] = [
    {title: 'Line', cell: ({line}) => numberText(line), right: true},
    {title: 'Samples', cell: ({samples}) => numberText(samples), right: true},
    {title: 'Reason', cell: ({reason}) => reason},
  ];
  const shown = columns.filter(({title}) => hasMany || title !== 'Samples');
  const rest = `… ${counted(more ?? 0, 'further line')}`;
  const where = all === null ? html`${rest} in <code>${object}</code>` : link(all, rest);
  return html`${table(`Rejected lines of stream ${stream}`, shown, lines)}${more ? html`<p class="quiet">${where}</p>` : ''}`;
}
