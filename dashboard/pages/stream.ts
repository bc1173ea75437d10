/** A stream: how far it is, why it waits or failed, and its shards. */
import {bytesText, type Column, counted, numberText} from '../../client/text/format.ts';
import type {Rejects, StreamPage} from '../../client/views/run-page.ts';
import type {Shard} from '../../shared/domain/records/shard.ts';
import {type Section, section} from '../html/feed.ts';
import {
  address,
  empty,
  figures,
  further,
  type Html,
  html,
  link,
  type Part,
  state,
  table,
  time,
} from '../html/html.ts';
import {sentence} from './why.ts';

export function streamPage({stream, shards, rejects, why}: StreamPage, now: number): Section[] {
  const {run, rejected_samples} = stream;
  const head = html`<h1>Stream ${stream.stream} ${state(stream.status)}</h1><p class="quiet">of run ${link(address('runs', run), run)}</p>${sentence(why)}${figures(
    [
      [
        'Samples',
        numberText(stream.total_samples_processed),
        rejected_samples > 0 ? `${numberText(rejected_samples)} rejected` : '',
      ],
      ['Tokens', numberText(stream.total_tokens)],
      ['Stored', bytesText(stream.total_bytes), counted(stream.total_shards, 'shard')],
      ['Input', bytesText(stream.size_bytes)],
      ['Leases', numberText(stream.epoch)],
    ],
  )}<p class="quiet">${stream.dataset_path}</p>`;
  const columns: Column<Shard, Part>[] = [
    {title: 'Shard', cell: ({shard}) => numberText(shard), right: true},
    {title: 'Samples', cell: samplesOf, right: true},
    {title: 'Rejected', cell: ({rejected}) => numberText(rejected), right: true},
    {title: 'Tokens', cell: ({tokens}) => numberText(tokens), right: true},
    {title: 'Size', cell: ({size_bytes}) => bytesText(size_bytes), right: true},
    {title: 'Lease', cell: ({epoch}) => numberText(epoch), right: true},
    {title: 'Stored', cell: ({stored_at}) => time(stored_at, now), right: true},
  ];
  const body =
    shards.length > 0
      ? html`${table('Shards', columns, shards)}${further(stream.total_shards - shards.length, 'shards')}`
      : empty('No shard yet: a TPU stores the first one when it is full.');
  return [
    section('head', head),
    section('shards', html`<h2>Shards</h2>${body}`),
    section(
      'rejects',
      html`${rejects.map(each => html`<h2>Rejected lines</h2>${rejectedLines(each, null)}`)}`,
    ),
    section(
      'document',
      html`<p>${link(address('documents', 'runs', run, 'streams', stream.stream), 'The document of the stream')}</p>`,
    ),
  ];
}

function samplesOf({first_sample, last_sample}: Shard): string {
  return `${numberText(first_sample)}–${numberText(last_sample)}`;
}

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
