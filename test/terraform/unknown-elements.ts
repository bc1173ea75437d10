/** Refuses a resource whose sets, lists or counted blocks hold what Terraform does not know before a plan. */
import {decode, ExtensionCodec} from '@msgpack/msgpack';
import type {Block} from '../../cli/terraform/stand-in.ts';

const UNKNOWN = Symbol('unknown');
/** Types of the plugin protocol for an unknown value, without and with what is known about it. */
const UNKNOWN_TYPES = [0, 12];
/** Names of resources that Google checks, and no provider. */
const UNCHECKED = ['notification_channels'];

const extensionCodec = new ExtensionCodec();
for (const type of UNKNOWN_TYPES) extensionCodec.register({type, encode: () => null, decode: () => UNKNOWN});

/**
 * Unknown elements and counts of a configuration, one text each; `config` has the encoding of the plugin protocol. The real provider checks each
 * element of a set also where it is unknown, and reads it as the empty text: a plan ends with an error. A counted block is one with a
 * least or a greatest number.
 */
export function unknownElements(block: Block, config: Uint8Array): string[] {
  return unknownIn(block, decode(config, {extensionCodec}));
}

function unknownIn({attributes = {}, block_types = {}}: Block, value: unknown): string[] {
  if (value === null || typeof value !== 'object') return [];
  const values = value as Record<string, unknown>;
  const elements = Object.entries(attributes).flatMap(([name, {type}]) => {
    const given = values[name];
    if (!isCollection(type) || UNCHECKED.includes(name) || !Array.isArray(given)) return [];
    return given.includes(UNKNOWN) ? [`an element of ${name} is unknown before a plan`] : [];
  });
  const blocks = Object.entries(block_types).flatMap(([name, {block, min_items, max_items}]) => {
    const given = values[name];
    if (given === UNKNOWN && (min_items || max_items))
      return [`the number of blocks ${name} is unknown before a plan`];
    const nested = Array.isArray(given) ? given : [given];
    return nested.flatMap(each => unknownIn(block, each).map(found => `${name}: ${found}`));
  });
  return [...elements, ...blocks];
}

/** True for a list or a set of texts or numbers. */
function isCollection(type: unknown): boolean {
  return Array.isArray(type) && (type[0] === 'set' || type[0] === 'list') && typeof type[1] === 'string';
}
