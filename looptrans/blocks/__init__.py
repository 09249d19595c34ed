"""A scheduled nest as operations on blocks."""
