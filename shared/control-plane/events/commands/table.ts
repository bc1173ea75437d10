/** Table of commands. A new command is one row, with its schema, preparation, decision and after-effects. */
import {z} from 'zod';
import {pool} from './create-pool.ts';
import {deleteNamed} from './delete-command.ts';
import {clear, submit} from './job-commands.ts';
import {correct} from './month-command.ts';
import {keep, scale, update} from './pool-commands.ts';
import {configure, pause, rebuild, resume, start, stop} from './run-commands.ts';
import {cancel, retry} from './stream-commands.ts';
import {recreate} from './worker-commands.ts';

export const COMMANDS = {
  start,
  pause,
  stop,
  resume,
  retry,
  cancel,
  recreate,
  delete: deleteNamed,
  rebuild,
  submit,
  clear,
  configure,
  scale,
  update,
  keep,
  pool,
  correct,
};

type Rows = typeof COMMANDS;
export type ControlMessage = {[Action in keyof Rows]: z.infer<Rows[Action]['schema']>}[keyof Rows];

const [first, ...others] = Object.values(COMMANDS).map(({schema}) => schema);

/** Schema of a message on topic `control`; published as docs/control.schema.json. */
export const controlMessage = z.discriminatedUnion('action', [
  first as z.ZodObject,
  ...(others as z.ZodObject[]),
]) as unknown as z.ZodType<ControlMessage>;
