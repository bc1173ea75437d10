/** docs/control-messages.md: the fields of each action, and each field with its type, limits, default and meaning. */

import {schemaOf, typeOf} from '../../../client/json/types.ts';
import {COMMANDS} from '../../../shared/control-plane/events/commands/table.ts';
import {poolDocument} from '../../../shared/domain/records/pool.ts';
import {poolPaces} from '../../../shared/domain/records/pool-settings.ts';
import {runDocument} from '../../../shared/domain/records/run.ts';
import {fieldTable, type Property, withTable} from './run-spec.ts';

/** A field without words of its own has those of the documents that it changes. */
const STORED = [poolDocument, runDocument].map(schema => schemaOf(schema).properties ?? {});

const ACTIONS = Object.entries(COMMANDS).map(([action, {schema}]) => {
  const {properties: {action: _, ...fields} = {}, required = []} = schemaOf(schema, 'input');
  return {action, fields: fields as Record<string, Property>, required};
});

function fieldOf(name: string): Property {
  const uses = ACTIONS.flatMap(({fields}) => fields[name] ?? []);
  const [widest] = uses.toSorted((a, b) => typeOf(b).length - typeOf(a).length);
  const described = uses.filter(each => each.description).slice(0, 1);
  const words = (described.length > 0 ? described : STORED.flatMap(fields => fields[name] ?? [])).map(
    ({description}) => description,
  );
  if (words.length === 0) throw new Error(`Failed to describe ${name} of messages`);
  const deployed = poolPaces[name as keyof typeof poolPaces];
  const own = deployed ?? uses.find(each => each.default !== undefined);
  const variable = deployed ? ` By default \`GLEANER_${name.toUpperCase()}\`.` : '';
  return {...widest, properties: {}, default: own?.default, description: words.join(' ') + variable};
}

export function controlPage(page: string): string {
  // docs/jobs.md has the fields of a job.
  const shown = ACTIONS.filter(({action}) => action !== 'submit');
  const names = [...new Set(shown.flatMap(({fields}) => Object.keys(fields)))];
  const table = fieldTable('field', Object.fromEntries(names.map(name => [name, fieldOf(name)])));
  const described = new Set<string>();
  const [actions = '', ...others] = page.split(/^(?=## )/m);
  const filled = actions.replace(/^(\| `(\w+)` \|[^|]+\| )[^|]+/gm, (row, before, named) => {
    if (named === 'submit') return row;
    const found = shown.find(({action}) => action === named);
    if (!found) throw new Error(`Failed to describe ${named}: no message has this action`);
    described.add(named);
    const texts = Object.keys(found.fields).map(
      name => `\`${name}\`${found.required.includes(name) ? ' (required)' : ''}`,
    );
    return `${before}${texts.join(', ')} `;
  });
  const missing = shown.filter(({action}) => !described.has(action));
  if (missing.length > 0)
    throw new Error(
      `Failed to find ${missing.map(({action}) => action).join(', ')} in the table: write a row`,
    );
  return filled + withTable(others.join(''), table);
}
