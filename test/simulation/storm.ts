/** The storm of a world: its faults and outages, the loss of its database, and how it ends. */

import {drawFaults} from './conditions/faults.ts';
import {MINUTE_MS} from './conditions/times.ts';
import type {Context} from './context.ts';
import type {Delivery} from './delivery.ts';
import type {LeftAlone} from './left-alone.ts';
import type {Operators} from './operators.ts';
import {PERMISSIONS} from './processes.ts';
import type {Vms} from './vms.ts';

/** The time between two interventions of an operator in the calm. */
const INTERVENTION_MS = 15 * MINUTE_MS;

type Parts = {context: Context; delivery: Delivery; operators: Operators; vms: Vms};

export function drawStorm(context: Context): void {
  const {chance, options} = context;
  context.storm = drawFaults(chance, options.without, options.condition);
  if (context.drawsOf('lost database')) context.storm.wipe = 1;
  // A slow tick starts the next one late, and a slow message wakes one late.
  if (context.drawsOf('slow ticks') || context.drawsOf('collisions'))
    context.storm.latency_ms = Math.max(context.storm.latency_ms, 1);
  context.faults = context.storm;
  context.note(() => `faults ${JSON.stringify(context.faults)}`);
}

/** Draws the outages of zones and services again every few minutes. */
export function changeFaults(parts: Parts): void {
  const {context, vms} = parts;
  if (context.isCalm) return;
  for (const [name, zone] of context.tpus.zones) {
    zone.soldOut = context.strikes('stockout');
    zone.overQuota = context.strikes('quota');
    zone.unreachable = context.strikes('partition') || zone.isDark;
    const {soldOut, overQuota, unreachable, isDark} = zone;
    context.note(() => `${name} ${JSON.stringify({soldOut, overQuota, unreachable, isDark})}`);
    if (context.strikes('storm')) vms.preemptZone(name);
    if (context.strikes('zone_cut')) context.cutZones.add(name);
    else context.cutZones.delete(name);
  }
  context.isApiOut = context.strikes('outage');
  context.isStoreOut = context.strikes('store_outage');
  context.refused = context.strikes('permission') ? context.chance.pick(PERMISSIONS) : undefined;
  context.invariants.silence.onOutage(context.isApiOut || context.isStoreOut);
  context.after(context.minutes(3, 12), () => changeFaults(parts));
}

/** Plans two times at which the database is lost. Only the first one that comes in the storm counts. */
export function planLoss(parts: Parts, storm_ms: number): void {
  const {chance, store} = parts.context;
  let isLost = false;
  const lose = () => {
    if (isLost || parts.context.isCalm) return;
    isLost = true;
    loseDatabase(parts);
  };
  parts.context.after(chance.between(0.2, 0.8) * storm_ms, lose);
  // The worst time is after the end of all work, when nodes remain that only the documents record.
  const {onCommit} = store;
  store.onCommit = (path, before, after) => {
    onCommit(path, before, after);
    const isDone =
      after?.status === 'completed' && before?.status === 'active' && path.split('/').length === 2;
    if (isDone && store.collection('runs').every(({data}) => data.status === 'completed'))
      parts.context.after(0, lose);
  };
}

function loseDatabase({context, delivery, operators}: Parts): void {
  context.note(() => 'the database is lost');
  context.store.wipe();
  context.alone.clear();
  context.submitted.clear();
  context.aged.clear();
  context.invariants.onWipe();
  // The loss of a database restarts no instance by itself. In some worlds an operator restarts all of them.
  if (context.chance.happens(0.25)) delivery.processes.killAll();
  operators.planRecovery();
  if (context.faults.partition > 0) cutZone(context);
}

/** Makes a zone unreachable until the calm, preferably a zone with nodes, whose documents are lost. */
function cutZone({chance, tpus}: Context): void {
  const zone = chance.pick([
    ...[...tpus.nodes.values()].map(node => tpus.zone(node.zone)),
    ...tpus.zones.values(),
  ]);
  Object.assign(zone, {isDark: true, unreachable: true});
}

export function endStorm({context, operators}: Parts, leftAlone: LeftAlone, calm_ms: number): void {
  context.note(() => 'the storm is over');
  context.endStorm();
  void leftAlone.restore();
  context.isApiOut = false;
  context.isStoreOut = false;
  context.refused = undefined;
  context.invariants.silence.onOutage(false);
  context.tpus.removeForeign();
  context.tpus.openZones();
  for (let ms = INTERVENTION_MS; ms < calm_ms; ms += INTERVENTION_MS)
    context.after(ms, () => operators.intervene());
}
