import type {Line} from '../../cli/screen/timeline.ts';
import type {Run} from '../../shared/domain/run/run.ts';
import {type Html, html} from '../html.ts';

export function historyCharts(_run: Run, _events: readonly Line[], _now: number): Html {
  return html``;
}
