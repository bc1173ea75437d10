import assert from 'node:assert/strict';
import {checkDocument, splitDocumentPath} from '../../shared/ports/document-limits.ts';
import type {Document, Query} from '../../shared/ports/ports.ts';
import {checkQuery} from '../../shared/ports/query-limits.ts';
import {documentOf, MIB, nested, VALID} from './document-cases.ts';

const INVALID: {name: string; path?: string; data: unknown; says: RegExp}[] = [
  {name: 'one byte over 1 MiB', data: documentOf(MIB + 1, 'runs/r'), says: /1048577 bytes.*1048576/},
  {name: 'one byte too many for a field', data: {a: 'x'.repeat(1_048_487)}, says: /"a".*1048487/},
  {name: '21 levels', data: nested(21), says: /a\.a\.a.*20 levels/},
  {name: 'a cycle', data: cycle(), says: /20 levels/},
  {name: 'undefined', data: {lease: {worker: undefined}}, says: /lease\.worker.*undefined/},
  {name: 'a hole in a list', data: {list: Object.assign([], {length: 1})}, says: /list\.0.*undefined/},
  {name: 'NaN', data: {n: Number.NaN}, says: /"n".*NaN/},
  {name: 'infinity', data: {n: -1 / 0}, says: /"n".*-Infinity/},
  {name: 'a bigint', data: {n: 1n}, says: /"n".*bigint/},
  {name: 'a Date', data: {when: new Date(0)}, says: /"when".*Date/},
  {name: 'a Date where an instant belongs', data: {made_at: new Date(0)}, says: /made_at.*instant/},
  {name: 'a Map', data: {map: new Map()}, says: /"map".*Map/},
  {name: 'a function', data: {f: () => 1}, says: /"f".*function/},
  {name: 'a list directly in a list', data: {list: [1, [2]]}, says: /list\.1.*list/},
  {name: 'half a character', data: {text: 'a\ud83d'}, says: /"text".*Unicode/},
  {name: 'half a character in a name', data: {'a\ud83d': 1}, says: /name.*Unicode/},
  {name: 'an empty field name', data: {map: {'': 1}}, says: /map.*empty/},
  {name: 'a quote in a field name', data: {'a"': 1}, says: /name holds a quote/},
  {name: 'a backslash in a field name', data: {map: {'\\': 1}}, says: /map.*name holds/},
  {name: 'a line break in a field name', data: {'a\nb': 1}, says: /name holds/},
  {name: 'a reserved field name', data: {__name__: 1}, says: /__name__.*reserved/},
  {name: 'the field __proto__', data: JSON.parse('{"__proto__": 1}'), says: /__proto__.*reserved/},
  {name: 'a field name of 1,501 bytes', data: {['x'.repeat(1501)]: 1}, says: /1500 bytes/},
  {
    name: 'an instant without milliseconds',
    data: {made_at: '2026-01-02T03:04:05Z'},
    says: /made_at.*2026-01-02T03:04:05\.678Z/,
  },
  {name: 'an instant with an offset', data: {made_at: '2026-01-02T03:04:05.678+00:00'}, says: /made_at/},
  {name: 'the 30th of February', data: {made_at: '2026-02-30T00:00:00.000Z'}, says: /made_at/},
  {name: 'an instant before the year 1', data: {made_at: '0000-12-31T23:59:59.999Z'}, says: /made_at/},
  {name: 'a number where an instant belongs', data: {made_at: 1_767_323_045_678}, says: /made_at/},
  {name: 'a bad instant deep in a list', data: {list: [{seen_at: 'soon'}]}, says: /list\.0\.seen_at/},
  {name: 'more than 40,000 index entries', data: {list: Array(40_001).fill(1)}, says: /40001 index entries/},
  {name: 'a list for a document', data: [], says: /a list/},
  {name: 'undefined for a document', data: undefined, says: /undefined/},
  {name: 'a path of one segment', path: 'runs', data: {}, says: /"runs".*collection/},
  {name: 'an empty path', path: '', data: {}, says: /""/},
  {name: 'an empty segment', path: 'runs//streams/007', data: {}, says: /"".*segment/},
  {name: 'a segment ..', path: 'runs/../streams/007', data: {}, says: /"\.\.".*segment/},
  {name: 'a slash at the end', path: 'runs/r/', data: {}, says: /"".*segment/},
  {name: 'a reserved id', path: 'runs/__r__', data: {}, says: /__r__.*reserved/},
  {name: 'an id with a line break that is reserved', path: 'runs/__\n__', data: {}, says: /reserved/},
  {name: 'an id of 1,501 bytes', path: `runs/${'é'.repeat(750)}x`, data: {}, says: /1500 bytes/},
  {name: 'half a character in an id', path: 'runs/\udc00', data: {}, says: /Unicode/},
  {name: 'a path over 6 KiB', path: Array(6).fill('x'.repeat(1100)).join('/'), data: {}, says: /6144 bytes/},
];

function cycle(): Document {
  const document: Document = {};
  document.again = document;
  return document;
}

const BAD_QUERIES: {name: string; query: Query; says: RegExp}[] = [
  {name: 'a field that is no name', query: {order_by: {field: 'a b'}}, says: /"a b"/},
  {name: 'a field with an empty part', query: {order_by: {field: 'a..b'}}, says: /"a\.\.b"/},
  {name: 'the document name', query: {order_by: {field: '__name__'}}, says: /__name__/},
  {
    name: 'a list to compare with',
    query: {where: [{field: 'a', op: '==', value: [1]}]},
    says: /only text, numbers/,
  },
  {
    name: 'a map to compare with',
    query: {where: [{field: 'a', op: '<', value: {b: 1}}]},
    says: /only text, numbers/,
  },
  {name: 'a range from null', query: {where: [{field: 'a', op: '>', value: null}]}, says: /a > null/},
  {name: 'null among alternatives', query: {where: [{field: 'a', op: 'in', value: [1, null]}]}, says: /null/},
  {name: 'NaN', query: {where: [{field: 'a', op: '==', value: Number.NaN}]}, says: /only text, numbers/},
  {
    name: 'an empty list of alternatives',
    query: {where: [{field: 'a', op: 'in', value: []}]},
    says: /at least one/,
  },
  {
    name: 'text instead of a list of alternatives',
    query: {where: [{field: 'a', op: 'in', value: 'abc'}]},
    says: /needs a list/,
  },
  {
    name: 'more than 30 alternatives',
    query: {
      where: [
        {field: 'a', op: 'in', value: [1, 2, 3, 4, 5, 6]},
        {field: 'b', op: 'in', value: [1, 2, 3, 4, 5, 6]},
      ],
    },
    says: /36 alternatives/,
  },
  {
    name: 'an invalid instant',
    query: {where: [{field: 'lease.expires_at', op: '<', value: 'now'}]},
    says: /expires_at is an instant/,
  },
  {
    name: 'text that is too long for an index',
    query: {where: [{field: 'a', op: '==', value: 'x'.repeat(1501)}]},
    says: /1500 bytes/,
  },
  {
    name: 'ranges on two fields',
    query: {
      where: [
        {field: 'a', op: '<', value: 1},
        {field: 'b', op: '>', value: 1},
      ],
    },
    says: /range on b .* a/,
  },
  {
    name: 'a range on a field and an order by another',
    query: {where: [{field: 'a', op: '<', value: 1}], order_by: {field: 'b'}},
    says: /range on a .* b/,
  },
  {
    name: 'a limit on a range in no order',
    query: {where: [{field: 'a', op: '<', value: 1}], limit: 1},
    says: /order_by a/,
  },
  {name: 'a limit of 0', query: {limit: 0}, says: /limit 0/},
  {name: 'a start in an order', query: {order_by: {field: 'a'}, after: 'x'}, says: /"after"/},
  {name: 'a start at a path', query: {after: 'runs/x'}, says: /"after"/},
  {name: 'a limit of half a document', query: {limit: 1.5}, says: /limit 1\.5/},
];

describe('limits of documents', () => {
  for (const {name, path = 'runs/r', data} of VALID)
    it(`a document may have ${name}`, () => checkDocument(path, data));

  for (const {name, path = 'runs/r', data, says} of INVALID)
    it(`a document with ${name} is refused`, () =>
      assert.throws(() => checkDocument(path, data as Document), {name: 'InvalidDocument', message: says}));

  it('a reason shortens long names', () => {
    const long = 'x'.repeat(1501);
    assert.throws(
      () => checkDocument('runs/r', {[long]: 1}),
      ({message}: Error) => message.length < 300,
    );
  });

  it('a document path has a collection and an id', () => {
    assert.deepEqual(splitDocumentPath('runs/r/streams/007'), {collection: 'runs/r/streams', id: '007'});
  });
});

describe('limits of queries', () => {
  for (const {name, query, says} of BAD_QUERIES)
    it(`a query with ${name} is refused`, () =>
      assert.throws(() => checkQuery('runs', query), {name: 'TypeError', message: says}));
});
