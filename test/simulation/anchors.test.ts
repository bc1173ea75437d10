import assert from 'node:assert/strict';
import {MISTAKES} from './mistakes.ts';
import {readTexts, Sources} from './planting/anchors.ts';
import {EDITS} from './planting/code.ts';
import {withChanges} from './planting/edits.ts';
import {childrenOf, parseTypes, type Tree, withDescendants} from './planting/pattern.ts';

const ALL = Object.entries({...MISTAKES, ...EDITS}).flatMap(([name, edits]) =>
  edits.map(edit => ({name, edit})),
);

describe('the edits of the control plane', () => {
  it('keep their places and need no other name when every name, file and line changes @long', () => {
    const texts = readTexts();
    const renamed = new Map([...texts].map(([file, text]) => [moved(file), withOtherNames(text)]));
    const [sources, copy] = [new Sources(texts), new Sources(renamed)];
    const wrong = ALL.flatMap(({name, edit}) => {
      try {
        const [{module, node}, place] = [sources.find(edit), copy.find(edit)];
        const {file, text, nodes} = place.module;
        const isSame =
          file === moved(module.file) && nodes.indexOf(place.node) === module.nodes.indexOf(node);
        const known = new Set(namesIn(text));
        const changed = withChanges(text, [copy.splice(edit, place)]);
        const unknown = namesIn(changed).filter(each => !known.has(each));
        return isSame && unknown.length === 0
          ? []
          : [`${name}: another place in ${file}, or needs ${unknown}`];
      } catch (error) {
        return [`${name}: ${(error as Error).message}`];
      }
    });
    assert.deepEqual(wrong, []);
  });
});

describe('an edit', () => {
  const edit = {in: 'three', find: '[1, $x]', replace: '[$x]'};

  it('without a place shows the nearest ones', () => {
    const texts = new Map([['a.ts', 'const three: number[] = [2, 2];']]);
    assert.throws(() => new Sources(texts).find(edit), /three has 0 places of .*\n {2}a.ts: \[2, 2\]/);
  });

  it('with two places shows both, unless the name decides', () => {
    const texts = new Map([
      ['a.ts', 'const one = [1, 2];'],
      ['b.ts', 'const two = [1, 2];'],
    ]);
    assert.throws(() => new Sources(texts).find(edit), /2 places of .*\n {2}a.ts: .*\n {2}b.ts: /);
    assert.equal(new Sources(texts).find({...edit, in: 'two'}).module.file, 'b.ts');
  });
});

function moved(file: string): string {
  return `moved/${file.replaceAll('/', '-')}`;
}

/** Renames everything except properties and globals, and doubles each end of a line. */
function withOtherNames(text: string): string {
  const tree = parseTypes(text);
  const shorthands = new Set(
    withDescendants(tree)
      .filter(({shorthand}) => shorthand)
      .map(({start}) => start),
  );
  const splices = identifiersIn(tree).map(({start, end, name}) => {
    const key = shorthands.has(start) ? `${name}: ` : '';
    return {file: '', start, end, text: `${key}other_${name}`};
  });
  return withChanges(text, splices).replaceAll('\n', '\n\n');
}

function namesIn(text: string): unknown[] {
  return identifiersIn(parseTypes(text)).map(({name}) => name);
}

/** The identifiers of variables, functions and classes. */
function identifiersIn(node: Tree): Tree[] {
  if (['ImportSpecifier', 'ExportSpecifier', 'MetaProperty'].includes(node.type)) return [];
  if (node.type === 'Identifier') return String(node.name) in globalThis ? [] : [node];
  const {key, property, ...others} = node;
  return childrenOf(node.computed ? node : (others as Tree)).flatMap(identifiersIn);
}
