// The JavaScript SDK of A2A as a client: reads an agent's card and sends it one message.
//
//   node a2a_client.mjs NODE_MODULES < settings.json      {url, text}
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';

let input = '';
for await (const piece of process.stdin) input += piece;
const settings = JSON.parse(input);
const require = createRequire(`${process.argv[2]}/`);
const root = join(dirname(require.resolve('@a2a-js/sdk')), '..');
const load = (name) => import(pathToFileURL(join(root, name)).href);
const { ClientFactory } = await load('dist/client/index.js');
const { Role } = await load('dist/index.js');

const client = await new ClientFactory().createFromUrl(settings.url);
const card = await client.getAgentCard();
const message = {
  messageId: 'message-1', role: Role.ROLE_USER, contextId: '', taskId: '', extensions: [], referenceTaskIds: [],
  parts: [{ content: { $case: 'text', value: settings.text }, metadata: undefined, filename: '', mediaType: '' }],
  metadata: undefined,
};
const reply = await client.sendMessage({ message, tenant: '', configuration: undefined, metadata: undefined });
process.stdout.write(JSON.stringify({ name: card.name, extensions: card.capabilities.extensions, reply }));
