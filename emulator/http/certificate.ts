/** A self-signed X.509 certificate of an RSA key, as Google publishes one for each key of its identity tokens. */
import {createPublicKey, type KeyObject, sign} from 'node:crypto';

const SEQUENCE = 0x30;
const SET = 0x31;
const INTEGER = 0x02;
const BIT_STRING = 0x03;
const NULL = 0x05;
const OBJECT_ID = 0x06;
const UTF8_STRING = 0x0c;
const UTC_TIME = 0x17;
const VERSION = 0xa0;

/** Object ids 1.2.840.113549.1.1.11 (SHA-256 with RSA) and 2.5.4.3 (common name). */
const SHA256_WITH_RSA = Buffer.from('2a864886f70d01010b', 'hex');
const COMMON_NAME = Buffer.from('550403', 'hex');

/** The certificate as PEM. It is valid from 2000 to 2049, because the key is deleted with the folder of its cloud. */
export function certificateOf(key: KeyObject, name: string): string {
  const algorithm = der(SEQUENCE, der(OBJECT_ID, SHA256_WITH_RSA), der(NULL));
  const subject = der(
    SEQUENCE,
    der(SET, der(SEQUENCE, der(OBJECT_ID, COMMON_NAME), der(UTF8_STRING, Buffer.from(name)))),
  );
  const validity = der(
    SEQUENCE,
    ...['000101000000Z', '491231235959Z'].map(time => der(UTC_TIME, Buffer.from(time))),
  );
  const content = der(
    SEQUENCE,
    der(VERSION, der(INTEGER, Buffer.from([2]))),
    der(INTEGER, Buffer.from([1])),
    algorithm,
    subject,
    validity,
    subject,
    createPublicKey(key).export({type: 'spki', format: 'der'}),
  );
  // The first byte of a bit string counts the unused bits of its last byte.
  const signature = der(BIT_STRING, Buffer.from([0]), sign('sha256', content, key));
  const text = der(SEQUENCE, content, algorithm, signature).toString('base64');
  const lines = text.match(/.{1,64}/g) ?? [];
  return ['-----BEGIN CERTIFICATE-----', ...lines, '-----END CERTIFICATE-----', ''].join('\n');
}

/** One value in DER: its tag, its length and its content. */
function der(tag: number, ...content: Buffer[]): Buffer {
  const all = Buffer.concat(content);
  if (all.length < 0x80) return Buffer.concat([Buffer.from([tag, all.length]), all]);
  const hex = all.length.toString(16);
  const length = Buffer.from(hex.padStart(hex.length + (hex.length % 2), '0'), 'hex');
  return Buffer.concat([Buffer.from([tag, 0x80 | length.length]), length, all]);
}
