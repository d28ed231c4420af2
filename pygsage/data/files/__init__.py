"""Files of arrays: written whole or not at all, mapped back, and read in pieces."""
