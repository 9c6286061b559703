"""GPT-2 (124M), built step by step: the code of the course.

Names are resolved when they are first used, so ``import gptlab`` is quick and loads no PyTorch:
``gptlab.GPTConfig`` and ``gptlab.Ledger`` work where PyTorch does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gptlab.lazy import lazily

if TYPE_CHECKING:
    from gptlab.cache import KVCache
    from gptlab.checkpoint import from_pretrained, load_checkpoint, save_checkpoint
    from gptlab.config import PRESETS, GPTConfig
    from gptlab.devices import device
    from gptlab.exercises import (
        assert_check,
        check,
        export_progress,
        hint,
        progress,
        reset_progress,
        solution,
    )
    from gptlab.generation import generate
    from gptlab.ledger import Ledger
    from gptlab.model import GPT
    from gptlab.tokenizer import get_tokenizer

__version__ = "0.1.0"

_HOME = {
    "GPTConfig": "config",
    "PRESETS": "config",
    "Ledger": "ledger",
    "get_tokenizer": "tokenizer",
    "device": "devices",
    "KVCache": "cache",
    "GPT": "model",
    "load_checkpoint": "checkpoint",
    "save_checkpoint": "checkpoint",
    "from_pretrained": "checkpoint",
    "generate": "generation",
    "check": "exercises",
    "hint": "exercises",
    "solution": "exercises",
    "progress": "exercises",
    "assert_check": "exercises",
    "export_progress": "exercises",
    "reset_progress": "exercises",
}

__all__ = [
    "GPT",
    "PRESETS",
    "GPTConfig",
    "KVCache",
    "Ledger",
    "assert_check",
    "check",
    "device",
    "export_progress",
    "from_pretrained",
    "generate",
    "get_tokenizer",
    "hint",
    "load_checkpoint",
    "progress",
    "reset_progress",
    "save_checkpoint",
    "solution",
]


__getattr__, __dir__ = lazily(__name__, _HOME)
