/** The planted mistakes: edits of the control plane that the worlds must find. */

import {BLAME} from './mistakes/blame.ts';
import {DOUBLE} from './mistakes/double.ts';
import {FORGE} from './mistakes/forge.ts';
import {LEAK} from './mistakes/leak.ts';
import {LOSE} from './mistakes/lose.ts';
import {ORDERS} from './mistakes/orders.ts';
import {OVERSPEND} from './mistakes/overspend.ts';
import {SLICES} from './mistakes/slices.ts';
import {STICK} from './mistakes/stick.ts';
import type {Mistakes} from './planting/anchors.ts';

export const CLASSES = {
  lose: LOSE,
  double: DOUBLE,
  leak: LEAK,
  overspend: OVERSPEND,
  stick: STICK,
  blame: BLAME,
  forge: FORGE,
  orders: ORDERS,
  slices: SLICES,
};

/** All mistakes by name. */
export const MISTAKES = Object.fromEntries(
  Object.values<Mistakes>(CLASSES)
    .flatMap(mistakes => Object.entries(mistakes))
    .map(([name, {shown_by = 'storm', ...given}]) => [
      name,
      {shown_by, edits: 'edits' in given ? given.edits : [given]},
    ]),
);
