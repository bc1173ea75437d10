/** A stream: how far it is, why it waits or failed, and its shards. */
import {bytesText, counted, numberText} from '../../client/text/format.ts';
import type {StreamPage} from '../../client/views/stream.ts';
import type {Section} from '../html/feed.ts';
import {address, empty, figures, further, html, link, state, table, time} from '../html/html.ts';
import {rejectedLines} from './rejects.ts';
import {section} from './section.ts';
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
  const columns = [
    ...[
      {title: 'Shard', number: true},
      {title: 'Samples', number: true},
      {title: 'Rejected', number: true},
    ],
    ...[
      {title: 'Tokens', number: true},
      {title: 'Size', number: true},
      {title: 'Lease', number: true},
    ],
    {title: 'Stored', number: true},
  ];
  const rows = shards.map(shard => [
    ...[numberText(shard.shard), `${numberText(shard.first_sample)}–${numberText(shard.last_sample)}`],
    ...[shard.rejected, shard.tokens].map(numberText),
    ...[bytesText(shard.size_bytes), numberText(shard.epoch), time(shard.stored_at, now)],
  ]);
  const body =
    shards.length > 0
      ? html`${table('Shards', columns, rows)}${further(stream.total_shards - shards.length, 'shards')}`
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
