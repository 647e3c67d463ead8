"""What an `ai://` resource can be besides a Python function: a model, a tool, an agent, a task.

    from onym.ai.endpoint.kinds.model import model

Each module has one function of its own name, which gives a handler for `Endpoint.add`. What is behind a
resource is a Protocol, so nothing here opens a connection.
"""
