/** docs/control-messages.md: the fields of each action, and each field with its type, limits, default and meaning. */
import {COMMANDS} from '../../../shared/control-plane/events/commands/table.ts';
import {jobDocument} from '../../../shared/domain/records/job.ts';
import {poolDocument} from '../../../shared/domain/records/pool.ts';
import {poolPaces} from '../../../shared/domain/records/pool-settings.ts';
import {runDocument} from '../../../shared/domain/records/run.ts';
import {limitsOf, type Property} from './run-spec.ts';
import {row, schemaOf, typeOf} from '../../../client/json/types.ts';

type Properties = Record<string, Property>;

/** A field without words of its own has those of the document that it changes. */
const STORED = [poolDocument, runDocument, jobDocument].map(schema => schemaOf(schema).properties ?? {});

const ACTIONS = Object.entries(COMMANDS).map(([action, {schema}]) => {
  const {properties: {action: _, ...fields} = {}, required = []} = schemaOf(schema, 'input');
  return {action, fields: fields as Properties, required};
});

function rowOf(name: string): string {
  const uses = ACTIONS.flatMap(({fields}) => fields[name] ?? []);
  const [widest] = uses.toSorted((a, b) => typeOf(b).length - typeOf(a).length);
  const description = [...uses, ...STORED.flatMap(fields => fields[name] ?? [])].find(
    each => each.description,
  );
  if (!widest || !description?.description) throw new Error(`Failed to describe ${name} of messages`);
  const {default: own} = uses.find(each => each.default !== undefined) ?? {};
  const deployed = poolPaces[name as keyof typeof poolPaces];
  const given = deployed
    ? `\`GLEANER_${name.toUpperCase()}\`, ${deployed.default}`
    : own === undefined
      ? ''
      : `\`${JSON.stringify(own)}\``;
  return row(`\`${name}\``, typeOf(widest), limitsOf(widest), given, description.description);
}

export function controlPage(template: string): string {
  const names = new Set(ACTIONS.flatMap(({fields}) => Object.keys(fields)));
  const rows = ['| field | type | limits | default | meaning |', '|---|---|---|---|---|'];
  return ACTIONS.reduce(
    (page, {action, fields, required}) =>
      page.replace(`{{${action}}}`, () =>
        Object.keys(fields)
          .map(name => `\`${name}\`${required.includes(name) ? ' (required)' : ''}`)
          .join(', '),
      ),
    template.replace('{{fields}}', () => [...rows, ...[...names].map(rowOf)].join('\n')),
  );
}
