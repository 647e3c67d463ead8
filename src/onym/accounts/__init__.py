"""People who sign in: accounts, roles, passwords, sessions, API tokens, OpenID Connect and the audit log.

Every application that signs people in uses this package. It has tables of its own and knows nothing of
registries; roles and scopes are strings that the application defines.
"""
