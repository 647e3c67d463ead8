"""Discovery of authorities: the sources, and which of their statements apply (AIIP/HTTPS v1, 3.3)."""
