"""The command line: argument parsing only."""
