// An authorization server for tests, on loopback over https: panva's oidc-provider with the grants that it lacks.
//
//   node authorization_server.mjs NODE_MODULES   (settings as JSON in ONYM_TEST_OIDC; see tests/oauth_support.py)
//
// Prints one line of JSON with its issuer, port and keys, then serves until standard input ends; with `port` and `key` in its
// settings it takes the place of one that was killed. `clients` are the metadata of
// its clients, `resources` URIs with the scopes of their tokens (JWTs, RFC 9068). It demands a DPoP nonce. Added:
// - token exchange (RFC 8693) of its own access tokens, with `act` (unless `impersonate`), and of its ID tokens
//   for an ID-JAG, for which `audiences` maps the start of a server's issuer to this client's ID there; `id_jag`
//   has claims (and `typ`, `seconds`) that it changes, by login;
// - jwt-bearer with an ID-JAG of `identity_provider` {issuer, jwks}, once each.
import { createServer } from 'node:https';
import { createRequire } from 'node:module';
import { createPrivateKey, createPublicKey, generateKeyPairSync, randomBytes } from 'node:crypto';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';

const settings = JSON.parse(process.env.ONYM_TEST_OIDC);
const require = createRequire(`${process.argv[2]}/`);
const main = require.resolve('oidc-provider');
const { default: Provider, errors } = await import(pathToFileURL(main).href);
const helper = (name) => import(pathToFileURL(join(dirname(main), 'helpers', name)).href);
const { default: validateDpop, checkDpopReplay } = await helper('validate_dpop.js');
const jose = await import(pathToFileURL(createRequire(main).resolve('jose')).href);

process.stdin.resume();
process.stdin.on('end', () => process.exit(0));

const server = createServer({ key: settings.tls.pem, cert: settings.tls.pem,
  ...(settings.client_ca ? { requestCert: true, rejectUnauthorized: false, ca: settings.client_ca } : {}) });
await new Promise((resolve) => { server.listen(settings.port ?? 0, '127.0.0.1', resolve); });
const issuer = `https://${settings.tls.host}:${server.address().port}`;

const ALG = 'ES256';
const privateKey = settings.key ? createPrivateKey({ key: settings.key, format: 'jwk' })
  : generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey;
const publicKey = createPublicKey(privateKey);
const jwk = { ...privateKey.export({ format: 'jwk' }), use: 'sig', alg: ALG, kid: 'of-the-tests' };
const SUBJECT = 'subject-of-';
const actors = new WeakMap();

// how and when the person of a token signed in (RFC 9068 2.2.1); "silent" is not told, "tired" signed in an hour ago in
// the browser
function signIn({ AuthorizationCode, RefreshToken, DeviceCode, BackchannelAuthenticationRequest: request }) {
  const { accountId, authTime, acr } = AuthorizationCode ?? RefreshToken ?? DeviceCode ?? request ?? {};
  if (!authTime || accountId === `${SUBJECT}silent`) return {};
  return { auth_time: authTime - (accountId === `${SUBJECT}tired` && !request ? 3600 : 0), ...(acr ? { acr } : {}) };
}

// a person's own device (CIBA): "away" never answers, "refuses" denies, everybody else signs in at once
async function answerOnDevice(ctx, request, account, client) {
  const { resource, scope } = ctx.oidc.params;
  if (account.accountId === `${SUBJECT}away`) return;
  if (account.accountId === `${SUBJECT}refuses`) {
    await provider.backchannelResult(request, new errors.AccessDenied('the person refused'));
    return;
  }
  const grant = new provider.Grant({ accountId: account.accountId, clientId: client.clientId });
  grant.addOIDCScope(scope);
  for (const one of [resource ?? []].flat()) grant.addResourceScope(one, scope);
  await grant.save();
  await provider.backchannelResult(request, grant, { authTime: Math.floor(Date.now() / 1000) });
}

const provider = new Provider(issuer, {
  // its own guard refuses loopback
  fetch: (url, options) => fetch(url, { method: options.method, headers: options.headers, body: options.body, redirect: 'manual' }),
  clients: settings.clients,
  clientDefaults: { id_token_signed_response_alg: ALG },
  jwks: { keys: [jwk] },
  cookies: { keys: ['a key of the tests'] },
  claims: { openid: ['sub'] },
  pkce: { required: () => true },
  clientAuthMethods: ['none', 'client_secret_basic', 'client_secret_post', 'private_key_jwt',
    ...(settings.client_ca ? ['self_signed_tls_client_auth'] : [])],
  scopes: [...new Set(['openid', 'offline_access', ...Object.values(settings.resources).join(' ').split(' ')])].filter(Boolean),
  issueRefreshToken: async (ctx, client) => client.grantTypeAllowed('refresh_token'),
  rotateRefreshToken: true,
  extraTokenClaims: (ctx) => ({ ...actors.get(ctx), ...signIn(ctx.oidc.entities) }),
  features: {
    devInteractions: { enabled: false },
    clientCredentials: { enabled: true },
    deviceFlow: { enabled: true },
    ciba: {
      enabled: true,
      deliveryModes: ['poll'],
      processLoginHint: (ctx, hint) => SUBJECT + hint,
      validateRequestContext: () => undefined,
      verifyUserCode: () => undefined,
      triggerAuthenticationDevice: answerOnDevice,
    },
    revocation: { enabled: true },
    pushedAuthorizationRequests: { enabled: true, requirePushedAuthorizationRequests: settings.require_par },
    dPoP: { enabled: true, nonceSecret: randomBytes(32), requireNonce: () => settings.nonce },
    mTLS: {
      enabled: Boolean(settings.client_ca),
      certificateBoundAccessTokens: true,
      selfSignedTlsClientAuth: true,
      getCertificate: (ctx) => {
        const found = ctx.socket.getPeerX509Certificate?.();
        return found ? found.toString() : undefined;
      },
      certificateAuthorized: () => true,
      certificateSubjectMatches: () => true,
    },
    richAuthorizationRequests: {
      enabled: true,
      types: { aiip_invoke: { validate: () => undefined } },
      authorizationDetailsForGrantSource: (ctx) => ctx.oidc.params.authorization_details && JSON.parse(ctx.oidc.params.authorization_details),
      authorizationDetailsForAccessToken: (ctx, token, source) => source?.rar
        ?? (ctx.oidc.params.authorization_details ? JSON.parse(ctx.oidc.params.authorization_details) : undefined),
      authorizationDetailsForIntrospection: (ctx, token) => token.rar,
    },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => undefined,
      useGrantedResource: () => true,
      getResourceServerInfo: (ctx, resource) => {
        if (!(resource in settings.resources)) throw new errors.InvalidTarget();
        return {
          scope: settings.resources[resource],
          audience: resource,
          accessTokenTTL: settings.seconds,
          accessTokenFormat: 'jwt',
          jwt: { sign: { alg: ALG } },
        };
      },
    },
  },
  interactions: { url: (ctx, interaction) => `/interaction/${interaction.uid}` },
  findAccount: (ctx, sub) => ({ accountId: sub, claims: () => ({ sub }) }),
  ttl: { AccessToken: settings.seconds, ClientCredentials: settings.seconds, AuthorizationCode: 60, DeviceCode: 600,
    IdToken: 600, Interaction: 600, Session: 600, Grant: 3600, RefreshToken: 3600 },
});

const EXCHANGE = 'urn:ietf:params:oauth:grant-type:token-exchange';
const BEARER = 'urn:ietf:params:oauth:grant-type:jwt-bearer';
const TYPE = 'urn:ietf:params:oauth:token-type:';
const used = new Set();

async function boundKey(ctx) {
  const proof = await validateDpop(provider, ctx);
  if (proof) await checkDpopReplay(provider, ctx, proof, ctx.oidc.client.clientId);
  return proof?.thumbprint;
}

// an access token for a person at one resource, with the scopes of the resource that were asked for
async function issue(ctx, accountId, jkt, actor) {
  const { resource, scope = '', authorization_details: details } = ctx.oidc.params;
  const info = await provider.ResourceServer && settings.resources[resource];
  if (info === undefined) throw new errors.InvalidTarget();
  const known = new Set(info.split(' '));
  const token = new provider.AccessToken({ accountId, client: ctx.oidc.client, scope: scope.split(' ').filter((one) => known.has(one)).join(' ') || undefined, gty: 'exchange' });
  token.resourceServer = new provider.ResourceServer(resource, { scope: info, audience: resource, accessTokenTTL: settings.seconds,
    accessTokenFormat: 'jwt', jwt: { sign: { alg: ALG } } });
  if (jkt) token.setThumbprint('jkt', jkt);
  if (details) token.rar = JSON.parse(details);
  if (actor) actors.set(ctx, { act: actor });
  ctx.oidc.entity('AccessToken', token);
  ctx.body = {
    access_token: await token.save(),
    issued_token_type: `${TYPE}access_token`,
    token_type: token.tokenType,
    expires_in: token.expiration,
    scope: token.scope,
    authorization_details: token.rar,
  };
}

const verified = async (token, options) => {
  try {
    return (await jose.jwtVerify(token, publicKey, { issuer, algorithms: [ALG], ...options })).payload;
  } catch (error) {
    throw new errors.InvalidGrant(error.message);
  }
};

provider.registerGrantType(EXCHANGE, async (ctx) => {
  const { params, client } = ctx.oidc;
  const jkt = await boundKey(ctx);
  if (params.requested_token_type === `${TYPE}id-jag`) {
    if (params.subject_token_type !== `${TYPE}id_token`) throw new errors.InvalidRequest('an ID token is needed');
    const person = await verified(params.subject_token, { audience: client.clientId });
    const clientId = Object.entries(settings.audiences).find(([start]) => String(params.audience).startsWith(start))?.[1];
    if (!clientId) throw new errors.InvalidTarget();
    const now = Math.floor(Date.now() / 1000);
    const { typ = 'oauth-id-jag+jwt', seconds = 300, ...claims } = settings.id_jag[person.sub.slice(SUBJECT.length)] ?? {};
    const grant = await new jose.SignJWT({
      sub: person.sub, client_id: clientId, resource: params.resource, scope: params.scope, ...(jkt ? { cnf: { jkt } } : {}),
      iss: issuer, aud: params.audience, jti: randomBytes(16).toString('hex'), iat: now - (seconds < 0 ? 600 : 0), exp: now + seconds, ...claims,
    }).setProtectedHeader({ alg: ALG, kid: jwk.kid, typ }).sign(privateKey);
    ctx.body = { access_token: grant, issued_token_type: `${TYPE}id-jag`, token_type: 'N_A', expires_in: 300, scope: params.scope };
    return;
  }
  if (params.subject_token_type !== `${TYPE}access_token`) throw new errors.InvalidRequest('an access token is needed');
  const person = await verified(params.subject_token, { typ: 'at+jwt' });
  // the client that got the token acts inside: it called the one that exchanges it
  const inner = person.client_id === client.clientId ? person.act
    : { sub: person.client_id, iss: issuer, ...(person.act ? { act: person.act } : {}) };
  const actor = settings.impersonate ? undefined : { sub: client.clientId, iss: issuer, ...(inner ? { act: inner } : {}) };
  await issue(ctx, person.sub, jkt, actor);
}, ['subject_token', 'subject_token_type', 'requested_token_type', 'actor_token', 'actor_token_type', 'audience', 'resource', 'scope',
  'authorization_details']);

provider.registerGrantType(BEARER, async (ctx) => {
  const { params, client } = ctx.oidc;
  const jkt = await boundKey(ctx);
  let grant;
  try {
    const keys = jose.createLocalJWKSet(settings.identity_provider.jwks);
    grant = (await jose.jwtVerify(params.assertion, keys, {
      issuer: settings.identity_provider.issuer, audience: issuer, typ: 'oauth-id-jag+jwt', requiredClaims: ['exp', 'jti', 'sub'],
    })).payload;
  } catch (error) {
    throw new errors.InvalidGrant(error.message);
  }
  if (grant.client_id !== client.clientId || (grant.cnf && grant.cnf.jkt !== jkt)) throw new errors.InvalidGrant('of another client or key');
  if (used.has(grant.jti)) throw new errors.InvalidGrant('used before');
  used.add(grant.jti);
  await issue(ctx, grant.sub, jkt);
}, ['assertion', 'resource', 'scope', 'authorization_details']);

async function form(request) {
  let body = '';
  for await (const piece of request) body += piece;
  return new URLSearchParams(body);
}

async function interaction(request, response) {
  const details = await provider.interactionDetails(request, response);
  const login = request.method === 'POST' ? (await form(request)).get('login') : details.params.login_hint;
  if (!login) {
    response.writeHead(200, { 'content-type': 'text/html; charset=utf-8' })
      .end('<!doctype html><title>Sign in</title><form method="post"><input name="login"></form>');
    return;
  }
  if (login === 'refuses') {
    await provider.interactionFinished(request, response, { error: 'access_denied' });
    return;
  }
  const { params } = details;
  const accountId = SUBJECT + login;
  const grant = new provider.Grant({ accountId, clientId: params.client_id });
  if (params.scope) grant.addOIDCScope(params.scope);
  for (const resource of [params.resource ?? []].flat()) grant.addResourceScope(resource, params.scope);
  if (params.authorization_details) for (const detail of JSON.parse(params.authorization_details)) grant.addRar?.(detail);
  await provider.interactionFinished(request, response, { login: { accountId }, consent: { grantId: await grant.save() } });
}

const serve = provider.callback();
server.on('request', (request, response) => {
  if (!request.url.startsWith('/interaction/')) return serve(request, response);
  return interaction(request, response).catch((error) => {
    response.writeHead(500, { 'content-type': 'text/plain' }).end(String(error));
  });
});

process.stdout.write(`${JSON.stringify({ issuer, port: server.address().port, key: jwk, jwks: { keys: [{ ...publicKey.export({ format: 'jwk' }), use: 'sig', alg: ALG, kid: jwk.kid }] } })}\n`);
