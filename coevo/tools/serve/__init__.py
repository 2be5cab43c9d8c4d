"""`coevo serve`: what a run has learned, weights and context, as an OpenAI-compatible server."""
