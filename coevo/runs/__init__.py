"""A run on disk: folder, journal, chunks, and what is derived from them."""
