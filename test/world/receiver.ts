/** A receiver of notifications that keeps what it accepts. */
import type {Undelivered} from '../../shared/contracts/errors.ts';
import type {Webhook} from '../../shared/ports/ports.ts';

export type Posted = {id: string; type: string; data: Record<string, unknown>; body: string};

export class FakeReceiver implements Webhook {
  readonly accepted: Posted[] = [];
  tries = 0;
  /** The error of each try; undefined accepts. */
  refusal: (tries: number) => Undelivered | undefined = () => undefined;

  async post(id: string, body: string): Promise<void> {
    this.tries += 1;
    const error = this.refusal(this.tries);
    if (error) throw error;
    const {type = '', data = {}} = JSON.parse(body) as Partial<Posted>;
    this.accepted.push({id, type, data, body});
  }

  /** The types of the accepted notifications, in their order. */
  get types(): string[] {
    return this.accepted.map(({type}) => type);
  }
}
