/** docs/control-messages.md has each action with its fields, each field with its type, and a valid example of each message. */
import assert from 'node:assert/strict';
import {schemaOf, typeOf} from '../../client/json/types.ts';
import {COMMANDS, controlMessage} from '../../shared/control-plane/events/commands/table.ts';
import {readPage} from '../support/docs/doc-blocks.ts';

const PAGE = readPage('docs/control-messages.md');
const ACTIONS = Object.keys(COMMANDS) as (keyof typeof COMMANDS)[];

function fieldsOf(action: keyof typeof COMMANDS): {name: string; isRequired: boolean; type: string}[] {
  const {properties = {}, required = []} = schemaOf(COMMANDS[action].schema, 'input');
  return Object.entries(properties)
    .filter(([name]) => name !== 'action')
    .map(([name, property]) => ({name, isRequired: required.includes(name), type: typeOf(property)}));
}

describe('docs/control-messages.md', () => {
  for (const action of ACTIONS)
    it(`has the fields of ${action}, and a valid example`, () => {
      const [, shown] =
        new RegExp(`^\\| \`${action}\` \\| [^|]+ \\| ([^|]+) \\| [^|]+ \\|$`, 'm').exec(PAGE) ?? [];
      const fields = fieldsOf(action).map(
        ({name, isRequired}) => `\`${name}\`${isRequired ? ' (required)' : ''}`,
      );
      assert.equal(shown, fields.join(', '));
      const examples = [...PAGE.matchAll(/--message='(.+)'$/gm)].map(([, message = '']) =>
        JSON.parse(message),
      );
      const own = examples.filter(example => example.action === action);
      assert.equal(own.length, 1);
      const parsed = controlMessage.safeParse(own[0]);
      assert.ok(parsed.success, JSON.stringify(parsed.error?.issues));
    });

  it('has each field once, with its widest type and its meaning', () => {
    const rows = [...PAGE.matchAll(/^\| `(\w+)` \| ([^|]+) \| [^|]+ \|$/gm)].map(([, name, type]) => [
      name,
      type,
    ]);
    const uses = Map.groupBy(ACTIONS.flatMap(fieldsOf), ({name}) => name);
    const fields = [...uses].map(([name, all]) => {
      const [widest] = all.map(({type}) => type).sort((a, b) => b.length - a.length);
      return [name, widest];
    });
    assert.deepEqual(rows, fields);
  });
});
