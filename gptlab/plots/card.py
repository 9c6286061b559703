"""The parameter budget of a GPT-2 on a card. Every number is the config's."""

from __future__ import annotations

from dataclasses import replace

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from gptlab.config import GPTConfig
from gptlab.ledger import Ledger

PARCHMENT, NAVY, BORDER = "#fcf0db", "navy", 8
"""The border is measured in pixels."""

LEFT, MIDDLE, RIGHT = 0.06, 0.64, 0.94
"""Where names begin, and where factors and counts end."""


def budget_card(ax: Axes, config: GPTConfig) -> Axes:
    """Draw the card: what each part has, the total, and what tying does to it. Made for a square of 5.6 inches.

    ``ax`` should fill its figure: ``fig.add_axes((0, 0, 1, 1))``. Type is sized for 5.6 inches and grows with it.
    """
    figure = ax.get_figure()
    assert figure is not None
    scale = ax.get_window_extent().width / figure.dpi / 5.6
    ledger = Ledger.from_config(config)
    ax.set(xlim=(0, 1), ylim=(0, 1), xticks=[], yticks=[], facecolor=PARCHMENT)
    for spine in ax.spines.values():
        spine.set_visible(False)
    border = BORDER / ax.get_window_extent().width
    for corner, width, height in [
        ((0, 0), 1, border), ((0, 1 - border), 1, border), ((0, 0), border, 1), ((1 - border, 0), border, 1),
    ]:  # fmt: skip
        ax.add_patch(Rectangle(corner, width, height, color=NAVY, linewidth=0))
    title = f"GPT-2 ({ledger.total / 1e6:,.0f}M): Architectural Accounting"
    ax.text(0.5, 0.925, title, ha="center", va="center", family="serif", color=NAVY, size=14.5 * scale)
    ax.text(
        0.5, 0.865, "Exact breakdown across embedding, attention and MLP layers", ha="center", va="center",
        family="serif", style="italic", color=NAVY, size=11 * scale,
    )  # fmt: skip
    rows = card_rows(config)
    step = 0.625 / len(rows)
    for i, cells in enumerate(rows):
        weight = "normal" if cells[0].startswith(" ") else "bold"
        for x, text, side in zip((LEFT, MIDDLE, RIGHT), cells, ("left", "right", "right"), strict=True):
            ax.text(
                x, 0.81 - step * i, text, ha=side, va="center", family="monospace", weight=weight, color=NAVY,
                size=10 * scale,
            )  # fmt: skip
    rule = 0.81 - step * (len(rows) - 1.45)
    ax.plot([LEFT, RIGHT], [rule, rule], color=NAVY, linewidth=0.8 * scale)
    ax.text(
        0.5, 0.095, tying_note(config), ha="center", va="center", family="serif", color=NAVY,
        size=10.5 * scale, linespacing=1.45,
    )  # fmt: skip
    return ax


def card_rows(config: GPTConfig) -> list[tuple[str, str, str]]:
    """The table: name, factors and count of each line; what belongs under a heading is indented."""
    V, P, C, L = config.vocab_size, config.n_positions, config.n_embd, config.n_layer
    ledger = Ledger.from_config(config)
    block = ledger.subtotal("h.0.")
    matrices = {
        part: sum(r.parameters for r in ledger if r.name.startswith(f"h.0.{part}") and len(r.shape) == 2)
        for part in ("attn", "mlp")
    }
    head = "token table, again" if config.tie_word_embeddings else f"{V:,} × {C:,}"
    return [
        _row("Embeddings", "", None),
        _row("  tokens", f"{V:,} × {C:,}", ledger.subtotal("wte")),
        _row("  positions", f"{P:,} × {C:,}", ledger.subtotal("wpe")),
        _row(f"One block of {L}", "", None),
        _row("  attention", f"4 × {C:,} × {C:,}", matrices["attn"]),
        _row("  MLP", f"2 × {C:,} × {4 * C:,}", matrices["mlp"]),
        _row("  biases", f"9 × {C:,}", _linear_biases(ledger)),
        _row("  2 LayerNorms", f"4 × {C:,}", ledger.subtotal("h.0.ln_")),
        _row("All blocks", f"{L} × {block:,}", L * block),
        _row("Final LayerNorm", f"2 × {C:,}", ledger.subtotal("ln_f")),
        _row("Head", head, 0 if ledger.tied else ledger.subtotal("lm_head")),
        _row("Total", "", ledger.total),
    ]


def _linear_biases(ledger: Ledger) -> int:
    rows = [row for row in ledger if row.name.startswith(("h.0.attn.", "h.0.mlp."))]
    return sum(row.parameters for row in rows if len(row.shape) == 1)


def tying_note(config: GPTConfig) -> str:
    """What tying does to the total, in two lines."""
    tied = Ledger.from_config(replace(config, tie_word_embeddings=True)).total
    untied = Ledger.from_config(replace(config, tie_word_embeddings=False)).total
    if config.tie_word_embeddings:
        return (
            f"Tied: the head is the token table and adds nothing.\n"
            f"A head of its own would add {untied - tied:,}: {untied:,} in all."
        )
    return (
        f"Untied: the head is a table of its own, {untied - tied:,} parameters.\n"
        f"Tied to the token table, as in GPT-2: {tied:,} in all."
    )


def _row(name: str, factors: str, count: int | None) -> tuple[str, str, str]:
    return name, factors, "" if count is None else f"{count:,}"
