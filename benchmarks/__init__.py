"""Speed and memory of gptlab, side by side with transformers: ``python -m benchmarks.compare``."""
