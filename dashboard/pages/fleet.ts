/** Pools, zones and TPUs: what each TPU does, why a zone gives none, and what it met since yesterday. */
import {counted, dollarText, durationText, numberText} from '../../client/text/format.ts';
import type {FleetView, PoolView, ZoneView} from '../../client/views/fleet.ts';
import {type TpuRow, totalsOf} from '../../client/views/tpus.ts';
import type {Counts} from '../../shared/domain/records/churn.ts';
import {shortText} from '../../shared/domain/records/constraint.ts';
import {type Section, section} from '../html/feed.ts';
import {
  address,
  empty,
  figures,
  further,
  type Html,
  html,
  markOf,
  state,
  time,
  tpuLinks,
  withCommands,
} from '../html/html.ts';
import {poolCommands} from './commands.ts';
import {capitalised} from './why.ts';

/** Most TPUs of a zone that get a line each. */
const MOST_CHIPS = 1000;

export function fleetPage(view: FleetView, now: number): Section[] {
  const {totals, pools, none} = view;
  return [
    section(
      'head',
      html`<h1>Fleet</h1>${figures([
        ['TPUs', numberText(totals.tpus), `${numberText(totals.working)} at work`],
        ['Billed', numberText(totals.billed)],
        [
          'Dollars an hour',
          dollarText(totals.usd_per_hour),
          totals.unknown_prices > 0 ? `and ${counted(totals.unknown_prices, 'unknown price')}` : '',
        ],
      ])}${noTpu(none)}`,
    ),
    ...pools.map(pool => section(`pool-${pool.name}`, poolPart(pool, now))),
  ];
}

/** Without work the next step is a run; where work waits, its reason names the next step. */
function noTpu(none: FleetView['none']): Html {
  if (none.length === 0) return html``;
  const text = none.map(each => `${capitalised(each.text)}.`).join(' ');
  return none.some(({waits}) => waits)
    ? empty(text)
    : empty(text, 'gleaner run start my-run --streams streams');
}

function poolPart({name, pool, kept, totals, zones}: PoolView, now: number): Html {
  const kind = pool
    ? `${pool.accelerator}, ${pool.spot ? 'spot' : 'on demand'}, ${counted(pool.workers_per_zone, 'slot')} in each zone`
    : 'as the deployment sets it';
  const budget = pool?.budget_usd
    ? `, ${dollarText(pool.spent_usd)} of ${dollarText(pool.budget_usd)} spent`
    : '';
  const stopped =
    pool && pool.limiter.state !== 'open'
      ? html`<p class="note"><span class="state hold" aria-hidden="true">‖</span> Creates are stopped${pool.limiter.since_at ? html` since ${time(pool.limiter.since_at, now)}` : ''}: ${withCommands(pool.limiter.reason ?? 'no reason is stored')}. ${withCommands(`\`gleaner pool resume ${name}\``)}</p>`
      : '';
  const wait = pool?.jobs_wait
    ? html`<p class="note">Jobs wait: ${withCommands(shortText(pool.jobs_wait))}</p>`
    : '';
  return html`<h2>Pool ${name}</h2><p class="quiet">${kind}; ${counted(totals.tpus, 'TPU')}, ${dollarText(totals.usd_per_hour)} an hour${budget}</p>${stopped}${wait}${
    kept ? html`<p class="note">It ${kept}.</p>` : ''
  }${zones.map(zone => zonePart(zone, now))}${poolCommands(name, pool?.limiter)}`;
}

function zonePart({zone, waits, day, held, tpus, gone}: ZoneView, now: number): Html {
  const next = waits?.next_try_at ? html`; tried again ${time(waits.next_try_at, now)}` : '';
  const times = waits && waits.refusals > 1 ? `; refused ${numberText(waits.refusals)} times` : '';
  return html`<div class="zone"><h3>${zone}</h3>${chips(tpus)}${
    waits ? html`<p class="note">${withCommands(shortText(waits))}${times}${next}.</p>` : ''
  }${held > 0 ? html`<p class="note">Holds ${counted(held, 'silent TPU')} until a new TPU reports.</p>` : ''}<p class="quiet">${dayText(day)}</p>${goneTpus(gone)}</div>`;
}

/** `9 requests since yesterday, 3 refused; 6 TPUs came after 2.1 min; 4 lives of 3.2 h, 3 preempted`. */
function dayText({tries, refusals, given, wait_s, lives, life_s, preemptions}: Counts): string {
  if (tries === 0 && lives === 0) return 'No request since yesterday.';
  const came = given > 0 ? `; ${counted(given, 'TPU')} came after ${durationText(wait_s / given)}` : '';
  const lived =
    lives > 0
      ? `; ${counted(lives, 'life', 'lives')} of ${durationText(life_s / lives)}, ${numberText(preemptions)} preempted`
      : '';
  return `${counted(tries, 'request')} since yesterday, ${numberText(refusals)} refused${came}${lived}.`;
}

/** The page of a TPU that is gone says how each of its lives ended. */
function goneTpus(names: readonly string[]): Html {
  if (names.length === 0) return html``;
  return html`<details><summary>${counted(names.length, 'TPU')} gone</summary><p>${tpuLinks(names.slice(0, MOST_CHIPS))}</p></details>`;
}

/** Each TPU by its slot, and the number and the dollars of each state. */
function chips(tpus: readonly TpuRow[]): Html {
  if (tpus.length === 0) return html`<p class="quiet">No TPU.</p>`;
  const states = Map.groupBy(tpus, ({status}) => status);
  const usd = totalsOf(tpus).usd_per_hour;
  return html`<ul class="chips">${tpus.slice(0, MOST_CHIPS).map(chip)}</ul>${further(tpus.length - MOST_CHIPS, 'TPUs')}<p class="counts">${[
    ...states,
  ].map(
    ([status, rows]) => html`<span>${state(status)} ${numberText(rows.length)}</span>`,
  )}${usd > 0 ? html`<span class="quiet">${dollarText(usd)} an hour</span>` : ''}</p>`;
}

/** The slot number with the state as shape and colour; work and reason on hover, and for screen readers. */
function chip({tpu, status, work, activity, reason, last_error}: TpuRow): Html {
  const slot = tpu.slice(tpu.lastIndexOf('-') + 1);
  const doing = work ?? reason ?? last_error ?? activity ?? 'no work';
  return html`<li><a class="chip ${markOf(status)}" href="${address('tpus', tpu)}" title="${status.toLowerCase()}: ${doing.slice(0, 160)}">${slot}<span class="visually-hidden"> ${status.toLowerCase()}</span></a></li>`;
}
