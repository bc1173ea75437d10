/** Subjects of events. `contradiction`: an object already exists with bytes that differ from those to create. */
export const EVENT_KINDS = [
  'run',
  'stream',
  'shard',
  'worker',
  'zone',
  'rejected',
  'control',
  'job',
  'exec',
  'contradiction',
] as const;

/** Event of the timeline: a change that people read about. The store keeps it for 30 days. */
export type TimelineEvent = {
  kind: (typeof EVENT_KINDS)[number];
  text: string;
  run?: string;
  stream?: string;
  worker?: string;
  job?: string;
  exec?: string;
  epoch?: number;
  /** Control message that the event is about. */
  message_id?: string;
  object?: string;
  /** Digests of a contradiction. */
  found?: string;
  made?: string;
  /** Events with the same `fold` are one event, with the text and the time of the last. */
  fold?: string | undefined;
};

/** An object already exists with bytes that differ from those to create. `found`, `made`: digests of the stored bytes and of those to create. */
export type Contradiction = {object: string; found: string; made: string};

/** `maker`: the one that tries to create the object. Repeated attempts are one event. */
export function contradictionEvent(
  {object, found, made}: Contradiction,
  maker: string,
  about: Pick<TimelineEvent, 'run' | 'stream' | 'job' | 'worker' | 'epoch'>,
): TimelineEvent {
  const text = `${object} exists with ${found}, and ${maker} made ${made}: find out who wrote it`;
  return {kind: 'contradiction', ...about, object, found, made, text, fold: `${object} ${found} ${made}`};
}
