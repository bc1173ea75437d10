import type {Store} from '../../../shared/ports/ports.ts';

/** An object with some methods in place of its own. */
export function withMethods<T extends object>(object: T, methods: Partial<T>): T {
  const get = (target: T, name: string | symbol) => {
    const found = Reflect.get(methods, name) ?? Reflect.get(target, name, target);
    return typeof found === 'function' ? found.bind(target) : found;
  };
  return new Proxy(object, {get});
}

/** A store whose reads fail as those of Firestore: the error of Google is the cause. */
export function brokenStore(store: Store, reads: ('get' | 'query')[], code: number, reason: string): Store {
  const fail = async () => {
    throw new Error(`Failed to read pools in Firestore: ${reason}`, {
      cause: Object.assign(new Error(reason), {code}),
    });
  };
  return withMethods(store, Object.fromEntries(reads.map(name => [name, fail])));
}
