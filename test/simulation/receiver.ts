/** The receiver of the notifications of a world. */
import {Undelivered} from '../../shared/contracts/errors.ts';
import type {Webhook} from '../../shared/ports/ports.ts';
import type {Call} from '../world/call.ts';
import type {Chance} from '../world/clock.ts';
import type {Context} from './context.ts';

export class Receiver {
  readonly #context: Context;
  readonly #chance: Chance;
  /** Shares of the notifications that it refuses, and that find it away, in the storm. */
  readonly #refuses: number;
  readonly #isAway: number;

  constructor(context: Context, chance: Chance) {
    this.#context = context;
    this.#chance = chance;
    this.#refuses = chance.pick([0, 0.2, 0.9]);
    this.#isAway = chance.pick([0, 0.2, 0.6]);
  }

  /** The receiver as one caller sees it: a call without an answer is no delivery. */
  through(call: Call): Webhook {
    return {
      post: (id, body) =>
        call('post', () => this.#take(id, body)).catch(error => {
          throw error instanceof Undelivered ? error : new Undelivered(false, error.message);
        }),
    };
  }

  #take(id: string, body: string): void {
    const {isCalm, invariants} = this.#context;
    const [refuses, isAway] = [this.#chance.next() < this.#refuses, this.#chance.next() < this.#isAway];
    if (!isCalm && isAway) throw new Undelivered(false, 'the receiver is away');
    if (!isCalm && refuses) throw new Undelivered(true, 'the receiver refuses it');
    invariants.notices.onAccepted(id, JSON.parse(body));
  }
}
