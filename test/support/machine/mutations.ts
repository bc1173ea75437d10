/** Damaged inputs for property tests, made of honest ones. */
import fc from 'fast-check';

type Mutation = (bytes: Buffer) => Buffer;

const place = fc.double({min: 0, max: 1, noNaN: true, maxExcluded: true});

/** Changes of bytes as damage, cuts and attackers make them: also numbers that claim a large size. */
const mutation: fc.Arbitrary<Mutation> = fc.oneof(
  fc.tuple(place, fc.nat(255)).map(
    ([at, byte]) =>
      (bytes: Buffer) =>
        replaced(bytes, at, Buffer.from([byte])),
  ),
  fc.tuple(place, fc.constantFrom('ffffff7f', 'ffffffff0f', '00000080', '8080808008', '0000')).map(
    ([at, hex]) =>
      (bytes: Buffer) =>
        replaced(bytes, at, Buffer.from(hex, 'hex')),
  ),
  place.map(end => (bytes: Buffer) => bytes.subarray(0, Math.floor(end * bytes.length))),
  fc.tuple(place, place).map(([from, to]) => (bytes: Buffer) => {
    const [start, end] = [from, to].map(share => Math.floor(share * bytes.length)) as [number, number];
    return Buffer.concat([bytes.subarray(0, end), bytes.subarray(start)]);
  }),
  fc
    .tuple(place, fc.constantFrom('[', '{', '"', '\0', '\ud800', '9'.repeat(400), '[['.repeat(600)))
    .map(([at, text]) => (bytes: Buffer) => {
      const index = Math.floor(at * bytes.length);
      return Buffer.concat([bytes.subarray(0, index), Buffer.from(text), bytes.subarray(index)]);
    }),
);

function replaced(bytes: Buffer, share: number, by: Buffer): Buffer {
  const at = Math.floor(share * bytes.length);
  return Buffer.concat([bytes.subarray(0, at), by, bytes.subarray(at + by.length)]);
}

/** A few changes of the same bytes. */
export function damaged(bytes: Buffer): fc.Arbitrary<Buffer> {
  return fc
    .array(mutation, {minLength: 1, maxLength: 4})
    .map(changes => changes.reduce((current, change) => change(current), bytes));
}
