/** Google's storage client adds more than ten listeners to a stream of some hundred kilobytes, and Node would warn of them. */
import {EventEmitter} from 'node:events';

EventEmitter.defaultMaxListeners = 50;
