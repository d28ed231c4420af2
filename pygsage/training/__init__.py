"""Training: the loop, its runs on disk, and the processes it runs on."""
