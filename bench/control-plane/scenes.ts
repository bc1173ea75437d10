import {EVENT_SCENES} from './event-scenes.ts';
import type {Scene} from './scene-work.ts';
import {TICK_SCENES} from './tick-scenes.ts';

/** Every scene by its name. */
export const SCENES: Record<string, Scene> = {...TICK_SCENES, ...EVENT_SCENES};
