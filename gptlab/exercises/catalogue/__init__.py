"""One module per exercise. Each defines EXERCISE; its name in snake case is the module's name."""
