"""Program to Step, one transformation a file; every one is judged by the checkers of analysis."""
