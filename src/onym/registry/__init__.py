"""Schemes, parameters and namespaces: who may register a name, how, and what is registered."""
