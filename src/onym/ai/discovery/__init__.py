"""How an authority is found, and what is believed of it (AIIP/HTTPS v1, 3.3)."""
