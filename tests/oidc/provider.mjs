// An OpenID provider for tests, on loopback, over http or with `tls` (host, PEM of key and chain) over https: panva's oidc-provider, one client, any user.
//
//   node provider.mjs NODE_MODULES   (settings as JSON in ONYM_TEST_OIDC; see tests/registry_support.py)
//
// Prints one line of JSON with its issuer, port and keys, then serves until standard input ends; with `port` and `keys` in its
// settings it takes the place of one that was killed. The authorization request
// leads to a form with the field `login` (and `acr`, for a class of authentication); a request with login_hint
// signs in that user at once. For each URI in `resources` it gives access tokens that are JWTs (RFC 9068), with
// the scopes of its value; `programs` are the metadata of more clients, which get such tokens for a person, bound to a
// DPoP key, with the class and the time of the sign-in. A person who is signed in there is asked again if `acr_values` or `max_age` want it,
// and a sign-out tells the client at `logout_uri` (Back-Channel Logout 1.0). `groups_file` has the groups of each login as JSON,
// and is read at each sign-in.
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createServer as createSecureServer } from 'node:https';
import { createRequire } from 'node:module';
import { generateKeyPairSync } from 'node:crypto';
import { pathToFileURL } from 'node:url';

const settings = JSON.parse(process.env.ONYM_TEST_OIDC);
const require = createRequire(`${process.argv[2]}/`);
const { default: Provider, errors, interactionPolicy } = await import(pathToFileURL(require.resolve('oidc-provider')).href);

process.stdin.resume();
process.stdin.on('end', () => process.exit(0));

const { tls } = settings;
const server = tls ? createSecureServer({ key: tls.pem, cert: tls.pem }) : createServer();
await new Promise((resolve) => { server.listen(settings.port ?? 0, '127.0.0.1', resolve); });
const { port } = server.address();
const issuer = tls ? `https://${tls.host}:${port}` : `http://127.0.0.1:${port}`;

const key = (alg, type, options) => ({
  ...generateKeyPairSync(type, options).privateKey.export({ format: 'jwk' }),
  use: 'sig', alg, kid: `${alg}-of-the-tests`,
});

const keys = settings.keys ?? [key('RS256', 'rsa', { modulusLength: 2048 }), key('ES256', 'ec', { namedCurve: 'P-256' }), key('Ed25519', 'ed25519')];

const SUBJECT = 'subject-of-';
const claims = (login) => ({
  sub: SUBJECT + login,
  name: `${login[0].toUpperCase()}${login.slice(1)} Example`,
  preferred_username: login,
  email: `${login}@example.net`,
  email_verified: !settings.unverified.includes(login),
  ...(settings.groups_file ? { groups: JSON.parse(readFileSync(settings.groups_file, 'utf8'))[login] } : {}),
});

// a class that was asked for voluntarily is asked for again too
const policy = interactionPolicy.base();
policy.get('login').checks.add(new interactionPolicy.Check('wanted_acr', 'another class of sign-in is wanted', (ctx) => {
  const wanted = (ctx.oidc.params.acr_values ?? '').split(' ').filter(Boolean);
  const done = ctx.oidc.result?.login !== undefined;
  return wanted.length > 0 && !done && !wanted.includes(ctx.oidc.acr);
}));

const provider = new Provider(issuer, {
  // its own guard refuses loopback
  fetch: (url, options) => fetch(url, { method: options.method, headers: options.headers, body: options.body, redirect: 'manual' }),
  acrValues: settings.acr_values,
  clients: [{
    client_id: settings.client_id,
    ...(settings.auth_method === 'private_key_jwt' ? { jwks_uri: settings.jwks_uri } : { client_secret: settings.client_secret }),
    ...(settings.logout_uri ? { backchannel_logout_uri: settings.logout_uri, backchannel_logout_session_required: settings.logout_session } : {}),
    post_logout_redirect_uris: ['http://127.0.0.1/any'],
    redirect_uris: ['http://127.0.0.1/any'],
    application_type: 'native',
    grant_types: ['authorization_code', 'refresh_token', 'client_credentials'],
    response_types: ['code'],
    token_endpoint_auth_method: settings.auth_method,
    id_token_signed_response_alg: settings.algorithm,
  }, ...(settings.programs ?? [])],
  jwks: { keys },
  cookies: { keys: ['a key of the tests'] },
  claims: { openid: ['sub', 'amr'], profile: ['name', 'preferred_username', 'groups'], email: ['email', 'email_verified'] },
  // the claims of the scope stand in the ID token, as most providers have it
  conformIdTokenClaims: false,
  pkce: { required: () => true },
  scopes: [...new Set(['openid', 'offline_access', ...Object.values(settings.resources).join(' ').split(' ')])].filter(Boolean),
  extraTokenClaims: (ctx, token) => {
    const { AuthorizationCode: code, RefreshToken: refresh } = ctx.oidc.entities;
    const signedIn = token.kind === 'AccessToken' ? code ?? refresh : undefined;
    return signedIn && { auth_time: signedIn.authTime, acr: signedIn.acr };
  },
  issueRefreshToken: async (ctx, client) => client.grantTypeAllowed('refresh_token') && (settings.programs ?? []).length > 0,
  features: {
    devInteractions: { enabled: false },
    dPoP: { enabled: true },
    clientCredentials: { enabled: true },
    backchannelLogout: { enabled: true },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => undefined,
      useGrantedResource: () => true,
      getResourceServerInfo: (ctx, resource) => {
        if (!(resource in settings.resources)) throw new errors.InvalidTarget();
        return {
          scope: settings.resources[resource],
          audience: resource,
          accessTokenTTL: settings.access_token_seconds,
          accessTokenFormat: 'jwt',
          jwt: { sign: { alg: settings.access_token_algorithm } },
        };
      },
    },
  },
  interactions: { policy, url: (ctx, interaction) => `/interaction/${interaction.uid}` },
  findAccount: (ctx, sub) => ({ accountId: sub, claims: () => claims(sub.slice(SUBJECT.length)) }),
  ttl: { AccessToken: 600, ClientCredentials: 600, AuthorizationCode: 60, IdToken: settings.id_token_seconds, Interaction: 600,
    Session: 600, Grant: 600 },
});

// the tests' own service listens on any free port
provider.Client.prototype.redirectUriAllowed = (uri) => ['127.0.0.1', 'gw.example', 'gateway.localhost'].includes(new URL(uri).hostname);
provider.Client.prototype.postLogoutRedirectUriAllowed = (uri) => ['127.0.0.1', 'gateway.localhost'].includes(new URL(uri).hostname);

const PAGE = `<!doctype html><html lang="en"><meta name="viewport" content="width=device-width"><title>Sign in</title>
<form method="post"><h1>${settings.title ?? 'Sign in'}</h1><p><label>Login <input name="login" autofocus></label>
<p><label>Class <select name="acr">${['', ...settings.acr_values].map((acr) => `<option>${acr}</option>`).join('')}</select></label>
<p><button>Sign in</button></form></html>`;

async function form(request) {
  let body = '';
  for await (const piece of request) body += piece;
  return new URLSearchParams(body);
}

async function signIn(request, response, details, login, acr) {
  const { params } = details;
  const accountId = SUBJECT + login;
  const grant = new provider.Grant({ accountId, clientId: params.client_id });
  grant.addOIDCScope(params.scope);
  for (const resource of [params.resource ?? []].flat()) grant.addResourceScope(resource, params.scope);
  const grantId = await grant.save();
  await provider.interactionFinished(request, response, {
    login: { accountId, ...(acr ? { acr, amr: ['pwd', 'otp'] } : { amr: ['pwd'] }) }, consent: { grantId },
  });
}

async function interaction(request, response) {
  const details = await provider.interactionDetails(request, response);
  const given = request.method === 'POST' ? await form(request) : new URLSearchParams();
  const login = given.get('login') ?? details.params.login_hint;
  if (!login) {
    response.writeHead(200, { 'content-type': 'text/html; charset=utf-8' }).end(PAGE);
  } else if (settings.denied.includes(login)) {
    await provider.interactionFinished(request, response, { error: 'access_denied' });
  } else {
    await signIn(request, response, details, login, given.get('acr'));
  }
}

const serve = provider.callback();
server.on('request', (request, response) => {
  if (!request.url.startsWith('/interaction/')) return serve(request, response);
  return interaction(request, response).catch((error) => {
    response.writeHead(500, { 'content-type': 'text/plain' }).end(String(error));
  });
});

process.stdout.write(`${JSON.stringify({ issuer, port, keys })}\n`);
