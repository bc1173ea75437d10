/** Variables and secrets of a job that the command line names. */
import {UsageError} from '../../client/text/errors.ts';
import {say} from '../../client/text/output.ts';
import type {JobFields} from './job-file.ts';

export type VariableOptions = {
  /** NAME=VALUE, or NAME for the value of this process. */
  env?: string[];
  /** Variables and the names of their secrets. */
  secret?: [string, string][];
};

/** The fields `env` and `secrets`, on top of those of a file. Says which values of this process become public. */
export function variablesOf({env, secrets}: JobFields, options: VariableOptions): JobFields {
  const given = (options.env ?? []).map(each => {
    const [name = '', ...rest] = each.split('=');
    const value = rest.length > 0 ? rest.join('=') : process.env[name];
    if (value === undefined)
      throw new UsageError(`--env ${name}: this shell exports no ${name}; give --env ${name}=VALUE`);
    return {name, value, isCopied: rest.length === 0};
  });
  const copied = given.filter(({isCopied}) => isCopied).map(({name}) => name);
  if (copied.length > 0)
    say(`The value of ${copied.join(', ')} is in the document of the job. For a key, use --secret`);
  const values = given.map(({name, value}) => [name, value]);
  return {
    ...(values.length > 0 ? {env: {...(env as object | null), ...Object.fromEntries(values)}} : {}),
    ...(options.secret
      ? {secrets: {...(secrets as object | null), ...Object.fromEntries(options.secret)}}
      : {}),
  };
}
