"""The JSON API: data types, handlers and the OpenAPI document."""
