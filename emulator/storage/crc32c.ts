/** Tables for CRC-32C (Castagnoli) by slicing by 8, eight bytes a step. node:zlib has only CRC-32. */
const slices = makeSlices();

function makeSlices(): Int32Array[] {
  const tables = Array.from({length: 8}, () => new Int32Array(256));
  const at = (slice: number, byte: number) => tables[slice]?.[byte] ?? 0;
  for (let byte = 0; byte < 256; byte++) {
    let crc = byte;
    for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0x82f63b78 : crc >>> 1;
    (tables[0] as Int32Array)[byte] = crc;
  }
  for (let slice = 1; slice < 8; slice++) {
    for (let byte = 0; byte < 256; byte++) {
      const previous = at(slice - 1, byte);
      (tables[slice] as Int32Array)[byte] = (previous >>> 8) ^ at(0, previous & 0xff);
    }
  }
  return tables;
}

export class Crc32c {
  #crc = -1;

  update(bytes: Uint8Array): void {
    const [t0, t1, t2, t3, t4, t5, t6, t7] = slices as [
      Int32Array,
      Int32Array,
      Int32Array,
      Int32Array,
      Int32Array,
      Int32Array,
      Int32Array,
      Int32Array,
    ];
    let crc = this.#crc;
    let i = 0;
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    for (const end = bytes.length - 7; i < end; i += 8) {
      const low = crc ^ view.getInt32(i, true);
      const high = view.getInt32(i + 4, true);
      crc =
        (t7[low & 0xff] as number) ^
        (t6[(low >>> 8) & 0xff] as number) ^
        (t5[(low >>> 16) & 0xff] as number) ^
        (t4[low >>> 24] as number) ^
        (t3[high & 0xff] as number) ^
        (t2[(high >>> 8) & 0xff] as number) ^
        (t1[(high >>> 16) & 0xff] as number) ^
        (t0[high >>> 24] as number);
    }
    for (; i < bytes.length; i++) crc = (t0[(crc ^ (bytes[i] as number)) & 0xff] as number) ^ (crc >>> 8);
    this.#crc = crc;
  }

  value(): number {
    return ~this.#crc >>> 0;
  }

  /** Base64 of the big-endian value, the format of Cloud Storage. */
  digest(): string {
    const bytes = Buffer.alloc(4);
    bytes.writeUInt32BE(this.value());
    return bytes.toString('base64');
  }
}
