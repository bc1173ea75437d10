import assert from 'node:assert/strict';
import {Command} from 'commander';
import {scaleMessage} from '../../../cli/hosts/scale-message.ts';
import {budget} from '../../../cli/terminal/arguments.ts';

describe('The message of gleaner scale', () => {
  const messageOf = (...args: string[]) => {
    const command = new Command().option('--budget-usd <usd>', 'dollars', budget);
    return JSON.parse(JSON.stringify(scaleMessage(undefined, command.parse(args, {from: 'user'}).opts())));
  };

  it('has the dollars of --budget-usd', () =>
    assert.deepEqual(messageOf('--budget-usd', '12.5'), {action: 'scale', budget_usd: 12.5}));

  it('has a null budget for none, which removes the limit', () =>
    assert.deepEqual(messageOf('--budget-usd', 'none'), {action: 'scale', budget_usd: null}));

  it('is refused without a change', () =>
    assert.throws(() => messageOf(), /^CliError: say what to change: /));
});
