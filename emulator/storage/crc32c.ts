/** Tables for CRC-32C (Castagnoli) by slicing by 8, eight bytes a step, one behind another. node:zlib has only CRC-32. */
const TABLES = makeTables();

function makeTables(): Int32Array {
  const tables = new Int32Array(8 * 256);
  for (let byte = 0; byte < 256; byte++) {
    let crc = byte;
    for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0x82f63b78 : crc >>> 1;
    tables[byte] = crc;
  }
  for (let at = 256; at < tables.length; at++) {
    const previous = tables[at - 256] as number;
    tables[at] = (previous >>> 8) ^ (tables[previous & 0xff] as number);
  }
  return tables;
}

export class Crc32c {
  #crc = -1;

  update(bytes: Uint8Array): void {
    const tables = TABLES;
    let crc = this.#crc;
    let i = 0;
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    for (const end = bytes.length - 7; i < end; i += 8) {
      const low = crc ^ view.getInt32(i, true);
      const high = view.getInt32(i + 4, true);
      crc =
        (tables[0x700 + (low & 0xff)] as number) ^
        (tables[0x600 + ((low >>> 8) & 0xff)] as number) ^
        (tables[0x500 + ((low >>> 16) & 0xff)] as number) ^
        (tables[0x400 + (low >>> 24)] as number) ^
        (tables[0x300 + (high & 0xff)] as number) ^
        (tables[0x200 + ((high >>> 8) & 0xff)] as number) ^
        (tables[0x100 + ((high >>> 16) & 0xff)] as number) ^
        (tables[high >>> 24] as number);
    }
    for (; i < bytes.length; i++) crc = (tables[(crc ^ (bytes[i] as number)) & 0xff] as number) ^ (crc >>> 8);
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
