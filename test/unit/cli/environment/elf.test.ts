import assert from 'node:assert/strict';
import {readElf, requirePortable, writeRunpath} from '../../../../cli/build/environment/portable.ts';
import {anElf, type ElfFacts} from '../../../support/machine/elf.ts';
import {Folder} from '../../../support/machine/folder.ts';

const LIBC = {'libc.so.6': ['GLIBC_2.2.5', 'GLIBC_2.35']};

const CASES: {name: string; elf: ElfFacts; why?: RegExp}[] = [
  {name: 'the newest glibc of Ubuntu 22.04', elf: {needed: ['libc.so.6'], versions: LIBC}},
  {name: 'a private symbol of glibc', elf: {versions: {'ld-linux-x86-64.so.2': ['GLIBC_PRIVATE']}}},
  {name: 'a library of its own folder', elf: {needed: ['libown.so.1']}},
  {name: 'an older C++', elf: {versions: {'libstdc++.so.6': ['GLIBCXX_3.4.9', 'CXXABI_1.3.13']}}},
  {
    name: 'a newer glibc in its second library',
    elf: {versions: {...LIBC, 'libm.so.6': ['GLIBC_2.29', 'GLIBC_2.36']}},
    why: /lib\/a\.so needs GLIBC_2\.36, and Ubuntu 22\.04 has GLIBC_2\.35: let this machine reach github\.com/,
  },
  {
    name: 'a newer OpenSSL',
    elf: {versions: {'libcrypto.so.3': ['OPENSSL_3.0.9']}},
    why: /has OPENSSL_3\.0\.2/,
  },
  {name: 'a newer C++', elf: {versions: {'libstdc++.so.6': ['GLIBCXX_3.4.31']}}, why: /has GLIBCXX_3\.4\.30/},
  {
    name: 'a library that the image may lack',
    elf: {needed: ['libc.so.6', 'libtk8.6.so']},
    why: /lib\/a\.so needs the library libtk8\.6\.so, which Ubuntu 22\.04 may lack/,
  },
  {name: 'another processor', elf: {machine: 183}, why: /is for another processor \(machine 183\)/},
];

describe('A library of the worker environment', () => {
  const folder = new Folder(afterEach);

  const put = (name: string, elf: ElfFacts) => folder.put(name, anElf(elf));

  for (const {name, elf, why} of CASES)
    it(`a library of the worker environment with ${name} is ${why ? 'refused' : 'accepted'}`, async () => {
      put('lib/a.so', elf);
      put('lib/b/libown.so.1', {});
      folder.put('lib/text.so', 'no program');
      const checked = requirePortable(folder.path);
      await (why ? assert.rejects(checked, why) : checked);
    });

  it('a library of the worker environment of a package is refused with the package as the cure', async () => {
    put('lib/python3.12/site-packages/a.so', {versions: {'libc.so.6': ['GLIBC_2.38']}});
    await assert.rejects(requirePortable(folder.path), /lock another version of this package$/);
  });

  it('a library of the worker environment keeps all facts but its search path when the search path changes', () => {
    const facts = {needed: ['libc.so.6', 'libz.so.1'], versions: LIBC, runpath: '/opt/pythons/3.12.1/lib'};
    const path = put('a.so', facts);
    const before = readElf(path);
    assert.ok(before?.runpath);
    assert.deepEqual(before.needed, facts.needed);
    assert.deepEqual(before.versions, LIBC['libc.so.6']);
    writeRunpath(path, before.runpath, '$ORIGIN/../lib');
    assert.deepEqual(readElf(path), {...before, runpath: {...before.runpath, text: '$ORIGIN/../lib'}});
  });

  it('a library of the worker environment refuses a search path that is longer than the old one', () => {
    const path = put('a.so', {runpath: '/lib'});
    const {runpath} = readElf(path) ?? {};
    assert.ok(runpath);
    assert.throws(() => writeRunpath(path, runpath, '$ORIGIN/../lib'), /has no room/);
    assert.deepEqual(readElf(path)?.runpath, runpath);
  });

  it('a library of the worker environment of this machine needs the library of C', function () {
    if (process.platform !== 'linux') this.skip();
    const {needed, versions} = readElf('/bin/ls') ?? {};
    assert.ok(needed?.includes('libc.so.6'));
    assert.ok(versions?.some(version => version.startsWith('GLIBC_2.')));
  });
});
