"""The rules of an HTTPS gateway to `ai://` resources, without a server: what passes, is refused, is recorded.

`onym.server.gateway` is the gateway that follows them.
"""
