"""The client for `llm://` names: who serves a model, in which wire format, and how a call goes."""
