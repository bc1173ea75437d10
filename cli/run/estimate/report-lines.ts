import {bytesText, counted, dollarText, durationText, numberText} from '../../../client/text/format.ts';
import type {Span} from '../../../client/views/assumptions.ts';
import {ageText} from '../../../shared/domain/billing/prices.ts';
import {UNIT_PRICES_OF} from '../../../shared/domain/billing/unit-prices.ts';
import {pricesText} from './price-origin.ts';
import type {Report} from './report.ts';
import {helpLines, limitText, sizesOf} from './stages.ts';

export function reportLines(report: Report, now: number): string[] {
  const {totals, sample, model, machine, tokens_per_second: rate, spec} = report;
  const outputs = [...spec.sites, ...(report.reductions ?? []).map(({name}) => name)];
  const of = `${report.layers} of ${report.model_layers} layers, ${outputs.join(', ')}, tokens ${JSON.stringify(spec.tokens)}`;
  const how = report.exact
    ? 'every byte was read'
    : `from ${counted(sample.lines, 'line')} in ${counted(sample.blocks, 'place')}, ${bytesText(sample.bytes)}; ranges are 95 % of what the places differ`;
  const where = report.exact ? 'in all' : 'in the sample';
  const lines = [
    `${report.what}: ${counted(report.streams, 'stream')}, ${bytesText(report.stream_bytes)}; ${how}`,
    `  model      ${model.name} (${model.family}, d_model ${model.d_model}): ${of}, ${spec.sites.length > 0 ? `${spec.dtype}, ` : ''}${spec.format}`,
    `  samples    ${span(totals.samples, whole)}; ${span(totals.rejected, whole)} rejected, ${span(totals.truncated, whole)} truncated`,
    ...report.reject_reasons.map(
      ({reason, samples}) =>
        `               ${whole(samples)} ${where}${samples > 1 ? ', such as' : ''}: ${reason}`,
    ),
    ...report.warnings.map(warning => `  warning    ${warning}`),
    `  tokens     ${span(totals.tokens, whole)}; ${whole(report.computed_tokens)} computed, with the padding of rows${report.generated_tokens > 0 ? `; at most ${whole(report.generated_tokens)} generated, each by a step over all weights` : ''}`,
    `  shards     ${span(totals.shards, whole)} of ${spec.shard_size_gb} GB`,
    `  bytes      ${span(report.stored_bytes, bytesText)}`,
    ...sizesOf(report).map(line => `  reduction  ${line}`),
  ];
  if (totals.samples.estimate === 0)
    return [...lines, `  time       none: no line${report.exact ? '' : ' of the sample'} becomes a sample`];
  if (report.program?.fits === false) return [...lines, `  time       none: ${report.program.reason}`];
  if (!rate || !report.tpu_hours || !report.clock_hours)
    return [
      ...lines,
      report.generated_tokens > 0
        ? '  time       unknown: the speed of decoding follows from the compiled program; give --compile, or set --tokens-per-second'
        : `  time       unknown: no speed is known for ${machine.accelerator}; set --tokens-per-second`,
    ];
  const {spot, on_demand} = report.usd;
  const stored = {...spec, layers: report.layers};
  const [waits, ...helping] = helpLines(machine.accelerator, rate, stored, report.helps);
  return [
    ...lines,
    `  speed      ${span(rate, whole)} tokens/s for each ${machine.accelerator}, limited by ${limitText(rate)}`,
    ...(waits ? [`  chips wait ${waits}`, ...helping.map(line => `           ${line}`)] : []),
    `  time       ${span(report.tpu_hours, time)} of TPU${startText(report)}; ${span(report.clock_hours, time)} on the clock with ${tpusText(machine.workers, report.streams)}`,
    `  dollars    ${spot ? `${span(spot, dollarText)} spot` : `unknown: ${machine.accelerator} has no price on spot`}${on_demand ? `, ${span(on_demand, dollarText)} on demand` : ''} (${machine.zone}; ${pricesText(report.prices_are, machine.zone, now)})`,
    besideLine(report, now),
    ...assumptions(report),
  ];
}

/** Costs beside the TPUs. Storage lasts, so it is a month's. */
function besideLine(
  {beside_usd: {network, nat, operations, control, storage_month}}: Report,
  now: number,
): string {
  const age = ageText(UNIT_PRICES_OF, now);
  const parts = [
    ...(network.estimate > 0 ? [`${span(network, dollarText)} network between regions`] : []),
    ...(nat.estimate > 0 ? [`${span(nat, dollarText)} Cloud NAT for the weights of a hub model`] : []),
    `${span(operations, dollarText)} operations`,
    `${span(control, dollarText)} functions and Firestore`,
    `${span(storage_month, dollarText)} storage each month`,
  ];
  return `  more costs ${parts.join(', ')} (unit prices of ${UNIT_PRICES_OF}${age ? `, ${age}` : ''})`;
}

function assumptions({assumed, earlier, program, tokens_per_second}: Report): string[] {
  const upload = tokens_per_second?.upload;
  if (earlier)
    return [
      `  earlier    run ${earlier.run}: ${dollarText(earlier.usd_per_million_tokens)} a million tokens, ${whole(earlier.tokens_per_s)} tokens/s from ${durationText(earlier.work_s)} of work, plus ${durationText(earlier.start_s)} of overhead per TPU, at ${dollarText(earlier.usd_per_hour)} an hour`,
    ];
  if (!assumed) return [];
  const start = `${assumed.start_s.estimate} s from READY to the first batch (${assumed.start_s.low} to ${assumed.start_s.high})`;
  const more = `${percent(assumed.preemption.estimate - 1)} more for preemptions`;
  if (!('utilisation' in assumed)) return [`  assumed    ${start}; ${more}`];
  const {utilisation, compiled_speed, chip_to_host_bytes_per_s} = assumed;
  const rate = upload?.rate;
  const computing = program?.fits
    ? `the TPU compiler's ${program.estimated_ms.toFixed(1)} ms a step, ${percent(program.share_of_peak)} of the peak (${compiled_speed.low} to ${compiled_speed.high} times that speed)`
    : `${percent(utilisation.estimate)} of a chip's peak (${percent(utilisation.low)} to ${percent(utilisation.high)})`;
  return [
    `  assumed    ${computing}; ` +
      (rate?.basis === 'assumed'
        ? `${gb(rate.estimate)} GB/s from a VM to the bucket (${gb(rate.low)} to ${gb(rate.high)}; ${rate.source}), `
        : '') +
      `${chip_to_host_bytes_per_s.estimate / 1e9} GB/s from a chip to its host; ${start}; ${more}`,
    '             none of these values was measured on a TPU: --tokens-per-second and --like RUN use measured values',
  ];
}

function span({estimate, low, high}: Span, text: (value: number) => string): string {
  const [middle, from] = [text(estimate), text(low)];
  const to = high === null ? 'unknown' : text(high);
  return from === to ? middle : `${middle} (${from} to ${to})`;
}

function gb(bytes: number): string {
  return (bytes / 1e9).toPrecision(2);
}

function percent(share: number): string {
  return `${Math.round(share * 100)} %`;
}

function whole(value: number): string {
  return numberText(Math.round(value));
}

function time(hours: number): string {
  return durationText(hours * 3600);
}

/** One TPU at a time works on a stream. */
function tpusText(workers: number, streams: number): string {
  const busy = counted(Math.min(workers, streams), 'TPU');
  return streams < workers ? `${busy} of ${workers}, for ${counted(streams, 'stream')}` : busy;
}

/** Share of the time that passes before the first batch: of a small run it is nearly all. */
function startText({assumed, machine, streams}: Report): string {
  const start_s = assumed?.start_s.estimate ?? 0;
  if (start_s === 0) return '';
  return `, ${durationText(start_s * Math.min(machine.workers, streams))} of it until the first batch`;
}
