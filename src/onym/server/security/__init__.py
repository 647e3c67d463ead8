"""Sign-in, access control and the ASGI middlewares of the web service."""
