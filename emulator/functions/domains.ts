import {AsyncLocalStorage} from 'node:async_hooks';
import Module from 'node:module';

type OnError = (error: unknown) => void;
type Loader = {_load: (name: string, ...rest: unknown[]) => unknown};

/**
 * Gives functions-framework, which loads after this call, other domains than Node's, which add a hook to every promise of the process. An
 * error that no awaited promise carries still goes to the handler that the framework has for its request.
 */
export function replaceDomains(): void {
  const handlers = new AsyncLocalStorage<OnError>();
  const create = () => {
    let handle: OnError;
    const on = (_event: string, given: OnError) => {
      handle = given;
    };
    return {on, run: (work: () => void) => handlers.run(handle, work)};
  };
  const loader = Module as unknown as Loader;
  const load = loader._load;
  loader._load = (name, ...rest) => (name === 'domain' ? {create} : load.call(loader, name, ...rest));
  const fail = (error: unknown): boolean => {
    const handle = handlers.getStore();
    if (!handle) {
      console.error(error);
      process.exit(1);
    }
    handle(error);
    return true;
  };
  process.on('uncaughtException', fail);
  // Node hands a rejected promise that nobody awaits to the domain of its time.
  const emit = (_event: string, error: unknown) => fail(error);
  Object.assign(process, {domain: {emit, bind: <T>(callback: T) => callback}});
}
