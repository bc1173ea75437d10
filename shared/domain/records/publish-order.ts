/** Publish times of the last message about each field, stored as `message_times`: `status_at` is that of `status`. */
export type PublishTimes = Record<string, string>;
export type Timed = {message_times: PublishTimes};

/** Splits the fields of a message. `current`: fields that the message may change. `outdated`: fields that a later message has changed. */
export function splitByPublishTime<Field extends string>(
  message_times: PublishTimes,
  fields: readonly Field[],
  published_at: string,
): {current: Field[]; outdated: Field[]} {
  const isOutdated = (field: Field) => {
    const last = message_times[`${field}_at`];
    return last !== undefined && last > published_at;
  };
  return {current: fields.filter(field => !isOutdated(field)), outdated: fields.filter(isOutdated)};
}

export function withPublishTime(
  message_times: PublishTimes,
  fields: readonly string[],
  published_at: string,
) {
  const {current} = splitByPublishTime(message_times, fields, published_at);
  return {...message_times, ...Object.fromEntries(current.map(field => [`${field}_at`, published_at]))};
}

/** Names each outdated field, with the publish time of the later message. */
export function outdatedText(message_times: PublishTimes, outdated: readonly string[]): string {
  const last = outdated.map(field => `${field} of ${message_times[`${field}_at`]}`).join(', ');
  return `outdated: a message published later has set ${last}`;
}
