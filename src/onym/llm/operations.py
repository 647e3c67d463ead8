"""The operations of a model endpoint: one row per operation.

A format module implements an operation as `encode_NAME` and `decode_NAME` with a path in its `routes`. The
planner, the flow, the cache, telemetry and the rules for provider rows read this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from onym.llm.types import Completion, Embeddings, ModelInfo, ModelPage

OperationName: TypeAlias = Literal["chat", "embed", "models", "model"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation.

    `capability` is the member of a provider row's capabilities that it needs, `title` names that in messages.
    `result` is what a format's decoder returns. `arguments` are the keyword arguments of a call besides
    `timeout` and `retries`. A stored `result` is cacheable. `telemetry` is `gen_ai.operation.name`. With
    `names_model`, a 404 may mean an unknown model, and the hint shows how to list models.
    """

    name: OperationName
    capability: str
    title: str
    result: type
    arguments: tuple[str, ...] = ()
    cacheable: bool = False
    telemetry: str
    names_model: bool = False

    @property
    def encoder(self) -> str:
        """The name of the function of a format that builds the body."""
        return f"encode_{self.name}"

    @property
    def decoder(self) -> str:
        """The name of the function of a format that reads the response."""
        return f"decode_{self.name}"


_ROWS: Final = (
    Operation(
        name="chat",
        capability="chat",
        title="chat",
        result=Completion,
        cacheable=True,
        telemetry="chat",
        names_model=True,
    ),
    Operation(
        name="embed",
        capability="embeddings",
        title="embeddings",
        result=Embeddings,
        arguments=("dimensions", "extra"),
        cacheable=True,
        telemetry="embeddings",
        names_model=True,
    ),
    Operation(
        name="models",
        capability="models",
        title="list of models",
        result=ModelPage,
        telemetry="models",
    ),
    Operation(
        name="model",
        capability="models",
        title="list of models",
        result=ModelInfo,
        telemetry="model",
    ),
)
#: the rows by name
OPERATIONS: Final[Mapping[str, Operation]] = {row.name: row for row in _ROWS}
#: what a provider row may have its own path or host for
ROUTE_NAMES: Final = frozenset({*OPERATIONS, "stream"})
