"""The memory of a training step and of inference: predicted from the config, and measured.

``forms`` predicts, and needs no PyTorch. ``trace`` follows every tensor along a step, on real or fake tensors;
``measure`` asks autograd and the allocator.
"""
