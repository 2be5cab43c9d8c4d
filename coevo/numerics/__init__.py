"""Seeds, shaping and credit: numpy only, no input and no output."""
