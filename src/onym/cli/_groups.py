"""Groups of commands."""

from __future__ import annotations

import click

__all__ = ["Ordered"]


class Ordered(click.Group):
    """A group that lists its commands in the order in which they were added, not by the alphabet."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command, as somebody who begins meets them."""
        return list(self.commands)
