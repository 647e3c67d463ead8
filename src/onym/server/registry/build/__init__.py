"""Records made ready to be shown: pure functions from what the store gives to the parts of a page."""
