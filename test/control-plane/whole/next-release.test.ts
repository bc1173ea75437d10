/**
 * The next release writes a document of each kind: a field at the top, a key in each nested object, a word of each enumeration. This
 * release goes on with its work, and keeps all of it.
 */
import assert from 'node:assert/strict';
import type {z} from 'zod';
import {STORED_SCHEMAS, schemaAt} from '../../../client/json/stored-schemas.ts';
import {RELEASE} from '../../../shared/contracts/settings/config.ts';
import {runRecords} from '../../../shared/control-plane/documents/documents.ts';
import {readPrices, storeCatalog} from '../../../shared/control-plane/documents/prices.ts';
import {paths} from '../../../shared/domain/names.ts';
import type {Document, Stored} from '../../../shared/ports/ports.ts';
import {aRun, at} from '../../world/builders.ts';
import {aBusyWorld, everyDocument, finishBusyWorld} from '../../world/scenes/busy-world.ts';
import {putDocuments} from '../../world/scenes/put-documents.ts';
import {World} from '../../world/world.ts';

/** The definition of a schema in zod. */
type Def = {
  type: string;
  shape?: Record<string, z.ZodType>;
  catchall?: z.ZodType;
  element?: z.ZodType;
  valueType?: z.ZodType;
  innerType?: z.ZodType;
  options?: z.ZodType[];
};
const defOf = (schema: z.ZodType) => schema._zod.def as unknown as Def;

/** An object or a word in a document: its names, `*` for each entry of a list or a map. */
type Part = {names: string[]; kind: 'object' | 'word'; isOpen: boolean};

/** Each object and each enumeration of a schema. `isOpen`: a word of another release is kept. */
function partsOf(schema: z.ZodType, names: string[] = [], isOpen = false): Part[] {
  const {type, shape, catchall, element, valueType, innerType, options} = defOf(schema);
  switch (type) {
    case 'object': {
      const isLoose = catchall !== undefined && defOf(catchall).type === 'unknown';
      const fields = Object.entries(shape ?? {}).flatMap(([name, field]) => partsOf(field, [...names, name]));
      return [{names, kind: 'object', isOpen: isLoose}, ...fields];
    }
    case 'enum':
      return [{names, kind: 'word', isOpen}];
    case 'union':
      return (options ?? []).flatMap(option => partsOf(option, names, true));
    default: {
      const inner = innerType ?? element ?? valueType;
      const isMany = element !== undefined || valueType !== undefined;
      return inner ? partsOf(inner, isMany ? [...names, '*'] : names, isOpen) : [];
    }
  }
}

/** The document with another value in each place of these names. A place that is absent or null stays so. */
function changed(value: unknown, [name, ...rest]: string[], change: (value: unknown) => unknown): unknown {
  if (name === undefined) return value === null || value === undefined ? value : change(value);
  if (value === null || typeof value !== 'object') return value;
  if (Array.isArray(value)) return value.map(each => changed(each, rest, change));
  const keys = name === '*' ? Object.keys(value) : [name].filter(key => key in value);
  const entries = keys.map(key => [key, changed((value as Document)[key], rest, change)]);
  return {...value, ...Object.fromEntries(entries)};
}

const WORD = 'of tomorrow';
const LATER = {later: {nested: [WORD]}};
const withLater = (value: unknown) => ({...(value as Document), ...LATER});

/** Fields that make another object of one that stands in the same place: a new life, a new lease, a new task, a new reason. */
const IDENTITY = ['incarnation', 'epoch', 'created_at', 'kind', 'about'];
const isSame = (one: Document, other: Document) => IDENTITY.every(name => one[name] === other[name]);

/** Places where the document has lost its key `later`, or a further word of an object that is still the same. */
function lost(before: unknown, after: unknown, at: string): string[] {
  if (!isMap(before) || !isMap(after)) return [];
  return Object.keys(before).flatMap(name => {
    const [one, other, place] = [before[name], after[name], `${at}.${name}`];
    if (name === 'later') return other === undefined ? [place] : [];
    if (!isSame(before, after)) return [];
    if (one === WORD) return other === WORD ? [] : [place];
    return isMap(one) && isMap(other) && isSame(one, other) ? lost(one, other, place) : [];
  });
}

function isMap(value: unknown): value is Document {
  return value !== null && typeof value === 'object';
}

const put = (world: World, path: string, data: Document) => putDocuments(world.store, {[path]: data});

function hasPlace(data: Document, names: string[]): boolean {
  return JSON.stringify(changed(data, names, () => WORD)) !== JSON.stringify(data);
}

/** Documents of a kind, these at work first. */
async function documentsOf(world: World, schema: z.ZodType): Promise<Stored[]> {
  const states = ['working', 'in_progress', 'running'];
  const isAtWork = ({data}: Stored) => states.includes(String(data.phase ?? data.status));
  const all = (await everyDocument(world)).filter(({path}) => schemaAt(path) === schema);
  return all.sort((a, b) => Number(isAtWork(b)) - Number(isAtWork(a)));
}

/**
 * Everything that a person would have to mend: errors about another document, and work that failed. The costs of a run that is left alone
 * are named, because they are not added.
 */
async function troubles(world: World, path?: string): Promise<string[]> {
  const isAbout = (message: string) =>
    (path !== undefined && message.includes(path)) || /USD are not added to the document of/.test(message);
  const errors = world.logs.filter(({severity, message}) => severity === 'ERROR' && !isAbout(message));
  const failed = (await everyDocument(world)).filter(({data}) => data.status === 'failed');
  return [...errors.map(({message}) => message), ...failed.map(each => `${each.path} has failed`)];
}

describe('A document of the next release', () => {
  for (const [title, schema] of Object.entries(STORED_SCHEMAS)) {
    it(`may have a further key in each of its objects: ${title}`, () => {
      const strict = partsOf(schema).filter(({kind, isOpen}) => kind === 'object' && !isOpen);
      assert.deepEqual(strict, []);
    });

    const closed = partsOf(schema).filter(({kind, isOpen}) => kind === 'word' && !isOpen);
    for (const {names} of closed)
      it(`is left alone with a further word: ${title} ${names.join('.')} @full`, async () => {
        const world = await aBusyWorld();
        const {path, data} =
          (await documentsOf(world, schema)).find(each => hasPlace(each.data, names)) ?? assert.fail();
        const spoilt = {...(changed(data, names, () => WORD) as Document), release: 'the next one'};
        await put(world, path, spoilt);
        const made = [...world.tpus.made];
        await world.minutes(6, 1);
        assert.deepEqual(await world.store.get(path), spoilt);
        assert.deepEqual([await troubles(world, path), world.tpus.made], [[], made]);
        await put(world, path, data);
        await finishBusyWorld(world);
        assert.deepEqual(await troubles(world, path), []);
      });
  }

  it('keeps its further keys, and words that only describe, at every depth, through the work of this release', async () => {
    const world = await aBusyWorld();
    const keyed = new Map<string, Document>();
    for (const {path, data} of await everyDocument(world)) {
      const schema = schemaAt(path);
      const parts = schema ? partsOf(schema).filter(({isOpen}) => isOpen) : [];
      const next = parts.reduce<unknown>(
        (value, {names, kind}) => changed(value, names, kind === 'word' ? () => WORD : withLater),
        data,
      ) as Document;
      await put(world, path, next);
      keyed.set(path, next);
    }
    const assertKept = async () => {
      const after = await everyDocument(world);
      assert.deepEqual(
        after.flatMap(({path, data}) => lost(keyed.get(path), data, path)),
        [],
      );
      assert.deepEqual(await troubles(world), []);
    };
    await world.minutes(4, 1);
    await assertKept();
    await finishBusyWorld(world);
    await assertKept();
  });

  it('is each of another name: every document that this release writes names it, at work and at its end', async () => {
    const world = await aBusyWorld();
    const found = await everyDocument(world);
    await finishBusyWorld(world);
    found.push(...(await everyDocument(world)));
    // Each key of `prices/chips` is the name of a price.
    const unnamed = found.filter(({path, data}) => path !== paths.prices() && data.release !== RELEASE);
    assert.deepEqual(unnamed, []);
  });

  it('has the name of this release once this release has written it', async () => {
    const {deps, store} = new World();
    await putDocuments(store, {'runs/my-run': {...aRun(), release: 'the next one'}});
    await runRecords.change(deps.store, ['my-run'], run => ({...run, priority: 3}));
    assert.partialDeepStrictEqual(await store.get('runs/my-run'), {priority: 3, release: RELEASE});
  });

  it('keeps the further keys and the source of a price, which counts', async () => {
    const world = new World();
    const v6e = {usd: 9, spot_usd: 3, source: WORD, ...LATER};
    const v5e = {usd: 9, spot_usd: 3, source: 'catalog', ...LATER};
    await put(world, paths.prices(), {'v6e@us-east5': v6e, 'v5litepod@us-east1': v5e});
    const [chips, pools] = [
      {'v5litepod@us-east1': {usd: 2, spot_usd: 1, since_at: at(0)}},
      [world.deps.config.pool],
    ];
    await storeCatalog(world.store, {chips, unknown: []}, world.now);
    const stored = await world.store.get(paths.prices());
    assert.deepEqual(stored?.['v6e@us-east5'], v6e);
    assert.partialDeepStrictEqual(stored?.['v5litepod@us-east1'], {...LATER, usd: 2, spot_usd: 1});
    assert.equal((await readPrices(world.deps, pools))['v6e@us-east5']?.usd, 9);
  });
});
