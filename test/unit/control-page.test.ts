/** docs/control-messages.md has a valid example of each message. */
import assert from 'node:assert/strict';
import {COMMANDS, controlMessage} from '../../shared/control-plane/events/commands/table.ts';
import {readPage} from '../support/docs/doc-blocks.ts';

const PAGE = readPage('docs/control-messages.md');

describe('docs/control-messages.md', () => {
  for (const action of Object.keys(COMMANDS))
    it(`has a valid example of ${action}`, () => {
      const examples = [...PAGE.matchAll(/--message='(.+)'$/gm)].map(([, message = '']) =>
        JSON.parse(message),
      );
      const own = examples.filter(example => example.action === action);
      assert.equal(own.length, 1);
      const parsed = controlMessage.safeParse(own[0]);
      assert.ok(parsed.success, JSON.stringify(parsed.error?.issues));
    });
});
