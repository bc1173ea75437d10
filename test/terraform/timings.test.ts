import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import {timingDefaults} from '../../shared/contracts/settings/environment.ts';
import {ROOT} from '../support/machine/process.ts';

const textOf = (file: string) => readFileSync(`${ROOT}${file}`, 'utf8');
const DEFAULTS = timingDefaults();

describe('each timing of the functions', () => {
  it('is a setting of terraform/, which has no default of its own', () => {
    const [, variable = ''] =
      /variable "timings" \{([\s\S]*?)\n\}/.exec(textOf('terraform/variables.tf')) ?? [];
    const [, list = ''] = /setsubtract\(keys\(var\.timings\), \[([\s\S]*?)\]\)/.exec(variable) ?? [];
    const names = [...list.matchAll(/"(\w+)"/g)].map(([, name = '']) => `GLEANER_${name.toUpperCase()}`);
    assert.deepEqual(names.sort(), Object.keys(DEFAULTS).sort());
    assert.match(variable, /default += \{\}/);
  });

  it('stands in docs/rules.md with its default', () => {
    const rows = textOf('docs/rules.md').matchAll(/^\| (`GLEANER_\w+_S`.*?) \| ([\d, ]+) \|/gm);
    const listed = [...rows].flatMap(([, names = '', values = '']) => {
      const seconds = values.split(', ');
      return [...names.matchAll(/`(\w+)`/g)].map(([, name = ''], index) => [name, seconds[index]] as const);
    });
    assert.deepEqual(Object.fromEntries(listed), DEFAULTS);
  });
});
