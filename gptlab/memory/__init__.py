"""Memory to the byte: what a model takes, by formula."""
