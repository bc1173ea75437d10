// Hook for `node --import`: prints the address of each module that a program loads on standard error.
import {registerHooks} from 'node:module';

registerHooks({
  load(url, context, next) {
    process._rawDebug(`loads ${url}`);
    return next(url, context);
  },
});
