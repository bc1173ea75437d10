/** The contract of Objects in `ports/ports.ts`, as tests for every bucket. */
import assert from 'node:assert/strict';
import type {Objects} from '../../shared/ports/ports.ts';

export const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
export const text = (read: Uint8Array | undefined): string | undefined =>
  read && new TextDecoder().decode(read);

const NAMES = ['a b', 'ü/é', 'x%2Fy', '100%', '?a=b#c', 'a+b', '\u{1f600}', "it's", '..x', 'a//b', '(1)*!'];

let folders = 0;
/** The bucket of the present test, and a folder that no other test has. */
let objects: Objects;
let folder = '';

export function itKeepsTheContract(open: () => Objects): void {
  beforeEach(() => {
    objects = open();
    folder = `contract-${folders++}/`;
  });
  testCreates();
  testReads();
  testMovesAndDeletes();
  testReplaces();
  testNames();
}

async function names(prefix = folder, start?: string): Promise<string[]> {
  const found = await objects.list(prefix, start === undefined ? {} : {start});
  return found.map(({name}) => name.slice(folder.length));
}

function testCreates(): void {
  it('create leaves an existing object unchanged', async () => {
    const name = `${folder}a`;
    await objects.create(name, bytes('first'), {metadata: {by: 'us'}});
    const before = await objects.head(name);
    assert.equal(await objects.create(name, bytes('second'), {metadata: {by: 'them'}}), 'exists');
    assert.deepEqual(await objects.head(name), before);
    assert.equal(text(await objects.read(name, {max_bytes: 100})), 'first');
  });

  it('only one of many creates of a name succeeds', async () => {
    const racing = Array.from({length: 10}, (_, n) =>
      objects.create(`${folder}a`, bytes(`${n}`.repeat(1000))),
    );
    const outcomes = await Promise.all(racing);
    assert.deepEqual(outcomes.sort(), ['created', ...Array(9).fill('exists')]);
    const winner = text(await objects.read(`${folder}a`, {max_bytes: 1000})) ?? '';
    assert.match(winner, /^(\d)\1{999}$/);
  });

  it('a name that is created again has a greater generation', async () => {
    await objects.create(`${folder}a`, bytes('1'));
    const first = await objects.head(`${folder}a`);
    await objects.delete(`${folder}a`);
    await objects.create(`${folder}a`, bytes('2'));
    const second = await objects.head(`${folder}a`);
    assert.ok(BigInt(second?.generation ?? 0) > BigInt(first?.generation ?? 0));
  });

  it('create stores only the given part of a buffer', async () => {
    await objects.create(`${folder}a`, bytes('0123456789').subarray(3, 5));
    assert.equal(text(await objects.read(`${folder}a`, {max_bytes: 10})), '34');
  });
}

function testReads(): void {
  it('a range has its bytes, from one generation only', async () => {
    const name = `${folder}a`;
    await objects.create(name, bytes('0123456789'));
    const {generation} = (await objects.head(name)) ?? assert.fail();
    const ranges = [objects.readRange(name, generation, 2, 5), objects.readRange(name, generation, 9, 10)];
    assert.deepEqual((await Promise.all(ranges)).map(text), ['234', '9']);
    assert.equal((await objects.readRange(name, generation, 0, 0))?.length, 0);
    await objects.replace(name, generation, bytes('other'));
    assert.equal(await objects.readRange(name, generation, 0, 1), undefined);
  });

  it('a read with a smaller limit is refused', async () => {
    await objects.create(`${folder}a`, bytes('12345'));
    await assert.rejects(objects.read(`${folder}a`, {max_bytes: 4}), {
      name: 'ObjectTooLarge',
      message: new RegExp(`${folder}a.* 5 bytes .* 4$`),
    });
  });

  it('an object may be empty', async () => {
    await objects.create(`${folder}a`, bytes(''));
    assert.equal((await objects.head(`${folder}a`))?.size_bytes, 0);
    assert.equal((await objects.read(`${folder}a`, {max_bytes: 0}))?.byteLength, 0);
  });

  it('a list is in the order of names, from the start name on', async () => {
    for (const name of ['b/2', 'a', 'b/10', 'c', 'b/é', 'b/z', 'B'])
      await objects.create(folder + name, bytes('x'));
    assert.deepEqual(await names(), ['B', 'a', 'b/10', 'b/2', 'b/z', 'b/é', 'c']);
    assert.deepEqual(await names(`${folder}b/`), ['b/10', 'b/2', 'b/z', 'b/é']);
    assert.deepEqual(await names(`${folder}b/`, `${folder}b/2`), ['b/2', 'b/z', 'b/é']);
    assert.deepEqual(await names(`${folder}b/`, `${folder}b/20`), ['b/z', 'b/é']);
    assert.deepEqual(await names(`${folder}b/`, `${folder}a`), ['b/10', 'b/2', 'b/z', 'b/é']);
    assert.deepEqual(await names(`${folder}b/`, `${folder}c`), []);
    const two = await objects.list(`${folder}b/`, {start: `${folder}b/2`, limit: 2});
    assert.deepEqual(
      two.map(({name}) => name),
      [`${folder}b/2`, `${folder}b/z`],
    );
    const [listed] = await objects.list(`${folder}b/10`);
    assert.deepEqual(listed, await objects.head(`${folder}b/10`));
  });
}

function testMovesAndDeletes(): void {
  it('a moved object keeps its bytes and its metadata, and a repeated move does nothing', async () => {
    const [name, to] = [`${folder}a`, `${folder}b`];
    await objects.create(name, bytes('1'), {metadata: {by: 'us'}});
    const {generation} = (await objects.head(name)) ?? assert.fail();
    for (let times = 0; times < 2; times++) await objects.move(name, generation, to);
    const moved = await objects.head(to);
    assert.deepEqual([await names(), moved?.metadata], [['b'], {by: 'us'}]);
    assert.equal(text(await objects.read(to, {max_bytes: 1})), '1');
    await objects.create(name, bytes('2'));
    await objects.move(name, generation, to);
    assert.equal(text(await objects.read(name, {max_bytes: 1})), '2', 'another generation stays');
  });

  it('a missing object is undefined, and deleting it does nothing', async () => {
    assert.equal(await objects.head(`${folder}none`), undefined);
    assert.equal(await objects.read(`${folder}none`, {max_bytes: 10}), undefined);
    await objects.delete(`${folder}none`);
    await objects.create(`${folder}a`, bytes('1'));
    await objects.delete(`${folder}a`);
    assert.equal(await objects.head(`${folder}a`), undefined);
  });
}

function testReplaces(): void {
  it('replace overwrites an object with its metadata', async () => {
    const name = `${folder}a`;
    await objects.create(name, bytes('first'), {metadata: {by: 'us', more: 'x'}});
    const before = await objects.head(name);
    const outcome = await objects.replace(name, before?.generation ?? '', bytes('2nd'), {
      metadata: {by: 'them'},
    });
    assert.equal(outcome, 'replaced');
    const after = await objects.head(name);
    assert.deepEqual([after?.size_bytes, after?.metadata], [3, {by: 'them'}]);
    assert.ok(BigInt(after?.generation ?? 0) > BigInt(before?.generation ?? 0));
    assert.equal(text(await objects.read(name, {max_bytes: 100})), '2nd');
    assert.deepEqual(await names(), ['a']);
  });

  it('replace leaves an object of another generation unchanged', async () => {
    const name = `${folder}a`;
    await objects.create(name, bytes('first'));
    const first = await objects.head(name);
    await objects.replace(name, first?.generation ?? '', bytes('second'));
    const second = await objects.head(name);
    assert.equal(await objects.replace(name, first?.generation ?? '', bytes('third')), 'changed');
    assert.deepEqual(await objects.head(name), second);
    assert.equal(text(await objects.read(name, {max_bytes: 100})), 'second');
  });

  it('replace creates no object', async () => {
    assert.equal(await objects.replace(`${folder}none`, '1700000000000000', bytes('x')), 'changed');
    await objects.create(`${folder}a`, bytes('x'));
    const gone = await objects.head(`${folder}a`);
    await objects.delete(`${folder}a`);
    assert.equal(await objects.replace(`${folder}a`, gone?.generation ?? '', bytes('y')), 'changed');
    assert.deepEqual(await names(), []);
  });

  it('only one of many replaces of a generation succeeds', async () => {
    await objects.create(`${folder}a`, bytes('first'));
    const {generation = ''} = (await objects.head(`${folder}a`)) ?? {};
    const racing = Array.from({length: 10}, (_, n) =>
      objects.replace(`${folder}a`, generation, bytes(`${n}`.repeat(1000))),
    );
    assert.deepEqual((await Promise.all(racing)).sort(), [...Array(9).fill('changed'), 'replaced']);
    const winner = text(await objects.read(`${folder}a`, {max_bytes: 1000})) ?? '';
    assert.match(winner, /^(\d)\1{999}$/);
  });
}

function testNames(): void {
  for (const name of NAMES)
    it(`${name} is a valid name of an object`, async () => {
      assert.equal(await objects.create(folder + name, bytes(name)), 'created');
      assert.deepEqual(await names(), [name]);
      assert.equal((await objects.head(folder + name))?.name, folder + name);
      assert.equal(text(await objects.read(folder + name, {max_bytes: 100})), name);
      await objects.delete(folder + name);
      assert.deepEqual(await names(), []);
    });
}
