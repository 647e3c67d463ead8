"""Ways to sign in: local accounts, OpenID Connect, API tokens."""
