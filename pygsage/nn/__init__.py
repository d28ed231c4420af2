"""The model and its inference over all neighbours."""
