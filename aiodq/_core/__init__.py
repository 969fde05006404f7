"""Values and decisions. Pure: no input or output, no clock, no randomness, no await."""
