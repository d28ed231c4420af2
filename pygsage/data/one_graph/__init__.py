"""One graph: from what a source gave, through the door, to what is trained on, in memory or on disk."""
