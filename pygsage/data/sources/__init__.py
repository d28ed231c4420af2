"""Where datasets come from: one module a kind of source."""
