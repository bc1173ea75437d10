/** Publish time of the last message about each field of a document: `status_at` is the time of the last message about `status`. */
export type Said = Record<string, string>;

/** Splits the fields of a message. `current`: fields that the message may change. `outdated`: fields that a later message has changed. */
export function splitBySaid<Field extends string>(
  said: Said,
  fields: readonly Field[],
  said_at: string,
): {current: Field[]; outdated: Field[]} {
  const isOutdated = (field: Field) => {
    const last = said[`${field}_at`];
    return last !== undefined && last > said_at;
  };
  return {
    current: fields.filter(field => !isOutdated(field)),
    outdated: fields.filter(isOutdated),
  };
}

/** Stores the publish time of a message about these fields. A later time stays. */
export function withSaid(said: Said, fields: readonly string[], said_at: string): Said {
  const {current} = splitBySaid(said, fields, said_at);
  return {...said, ...Object.fromEntries(current.map(field => [`${field}_at`, said_at]))};
}

/** Names each outdated field, with the publish time of the later message. */
export function outdatedText(said: Said, outdated: readonly string[]): string {
  const last = outdated.map(field => `${field} of ${said[`${field}_at`]}`).join(', ');
  return `outdated: a message published later has set ${last}`;
}
