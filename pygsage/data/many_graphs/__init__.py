"""Many graphs, checked and ready to train on."""
