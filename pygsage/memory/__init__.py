"""What the machine has and what a job may use of it. Standard library only."""
