import {CliError} from '../../client/text/errors.ts';

/** Text for a person, of an error that the person can mend; undefined for a defect. The classes load with the first error. */
export async function errorText(error: NodeJS.ErrnoException): Promise<string | undefined> {
  const {message, path, syscall} = error;
  // A system error about a file names it.
  if (error instanceof CliError || (path !== undefined && syscall !== undefined) || error.code === 'ENOSPC')
    return message;
  const {LocalCloudError} = await import('../../emulator/http/errors.ts');
  const {Rejected, ServiceError} = await import('../../shared/contracts/errors.ts');
  if (error instanceof LocalCloudError || error instanceof Rejected || error instanceof ServiceError)
    return message;
  const {knownError} = await import('../../shared/google/known-errors.ts');
  const {withAdvice} = await import('../../shared/google/errors.ts');
  return knownError(message)?.mend === undefined ? undefined : withAdvice(error);
}
