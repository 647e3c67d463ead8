"""One module for each command; `onym.cli._app` imports a module only when its command runs."""
