import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import {timingDefaults} from '../../shared/contracts/settings/environment.ts';
import {poolPaces} from '../../shared/domain/records/pool-settings.ts';
import {ROOT} from '../support/machine/process.ts';

describe('each timing of the functions', () => {
  it('stands in docs/inside/rules.md with its default', () => {
    const rows = readFileSync(`${ROOT}docs/inside/rules.md`, 'utf8').matchAll(
      /^\| (`GLEANER_\w+_S`.*?) \| ([\d, ]+) \|/gm,
    );
    const listed = [...rows].flatMap(([, names = '', values = '']) => {
      const seconds = values.split(', ');
      return [...names.matchAll(/`(\w+)`/g)].map(([, name = ''], index) => [name, seconds[index]] as const);
    });
    const paces = Object.keys(poolPaces).map(name => `GLEANER_${name.toUpperCase()}`);
    const others = Object.entries(timingDefaults()).filter(([name]) => !paces.includes(name));
    assert.deepEqual(Object.fromEntries(listed), Object.fromEntries(others));
  });
});
