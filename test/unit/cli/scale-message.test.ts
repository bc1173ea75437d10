import assert from 'node:assert/strict';
import {scaleMessage} from '../../../cli/pools/scale.ts';
import {dollars, orNone} from '../../../cli/terminal/arguments.ts';
import {GleanerCommand} from '../../../cli/terminal/command.ts';

describe('The message of gleaner scale', () => {
  const messageOf = (...args: string[]) => {
    const command = new GleanerCommand().option('--budget-usd <usd>', 'dollars', orNone(dollars));
    return JSON.parse(JSON.stringify(scaleMessage(undefined, command.parse(args, {from: 'user'}).opts())));
  };

  it('the message of gleaner scale has the dollars of --budget-usd', () =>
    assert.deepEqual(messageOf('--budget-usd', '12.5'), {action: 'scale', budget_usd: 12.5}));

  it('the message of gleaner scale has a null budget for none, which removes the limit', () =>
    assert.deepEqual(messageOf('--budget-usd', 'none'), {action: 'scale', budget_usd: null}));

  it('the message of gleaner scale is refused without a change', () =>
    assert.throws(() => messageOf(), /^UsageError: There is nothing to change: give --zones, .* or --\S+$/));
});
