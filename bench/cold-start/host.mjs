// Serves one function as the functions framework does in a container, on loopback: `host.mjs MODULE NAME`. Plain JavaScript, because
// the time to remove types from a file of TypeScript would count as the function's.
import {pathToFileURL} from 'node:url';

const [module, name] = process.argv.slice(2);
// The framework of the module, not a second copy.
const {getTestServer} = await import('@google-cloud/functions-framework/testing');
await import(pathToFileURL(module).href);
const server = getTestServer(name).listen(0, '127.0.0.1', () => process.send(server.address().port));
process.on('disconnect', () => process.exit());
