"""The command line: one module a command. Loads no torch until a command needs it."""
