"""The passes a compilation runs, in order, and why in this order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from taskc.ir.graph import Graph
from taskc.passes.cleanup import FoldConstants, make_empty_values_constant, remove_dead_nodes, share_equal_values
from taskc.passes.layout import put_channels_last
from taskc.passes.rule import Note, Rule, apply_rules
from taskc.passes.rules.align_products import AlignProducts
from taskc.passes.rules.attention import RecognizeAttention
from taskc.passes.rules.casts import MergeCasts
from taskc.passes.rules.identities import DifferenceToSum, DropNeutral, MergeConstants, PowerToProduct, QuotientToProduct
from taskc.passes.rules.merge_convolutions import MergeConvolutions
from taskc.passes.rules.merge_products import MergeProducts
from taskc.passes.rules.pad_channels import PadChannels
from taskc.passes.rules.scales import FoldScaleIntoWeights, ScaleBeforeSum
from taskc.passes.rules.slices import MoveSlice
from taskc.passes.rules.views import MergeReshapes, MergeTransposes, MoveFill, TransposeBetweenReshapes, TransposeToReshape

Pass = Callable[[Graph], Graph]
Observe = Callable[[str, Graph], None]

VIEWS: tuple[Rule[Any], ...] = (MoveFill(), MergeTransposes(), TransposeToReshape(), MergeReshapes(), TransposeBetweenReshapes())
ARITHMETIC: tuple[Rule[Any], ...] = (DropNeutral(), PowerToProduct(), QuotientToProduct(), DifferenceToSum(), MergeConstants(),
                                     ScaleBeforeSum(), FoldScaleIntoWeights(), MergeCasts())


@dataclass(frozen=True)
class Rewrite:
    """Applies rules until none applies; refusals go to `note`."""

    name: str
    rules: tuple[Rule[Any], ...]
    note: Note | None = None

    def __call__(self, g: Graph) -> Graph:
        return apply_rules(g, self.rules, self.note)


def default_passes(*, channels_last: bool = True, attention: bool = True, merge: bool = True, merge_convolutions: bool = False,
                   copy_parts: bool = False, pad_channels: int = 0, align_products: bool = True, note: Note | None = None) -> tuple[Pass, ...]:
    """What a compilation runs. `merge`: products of one value become one; `merge_convolutions`: convolutions too, which on an
    H200 made Inception-v3 3 % slower (324 against 316 us, untuned, in one run), so it is off; `copy_parts`: see MergeSiblings;
    `pad_channels`: see PadChannels; never by default, as padding was no gain on an H200 (docs/experiments.md); `align_products`: see AlignProducts.

    Constants are folded first, so that rules see them. Attention is found before the view rules take its pattern apart.
    Products merge when scales are in their weights and attention has taken up what stands behind them. Layouts come after
    the arithmetic, which then only knows channels first. Views and sharing clean up behind them. Channels and rows are padded
    last: a pad stays in front of its convolution or product."""
    passes: list[Pass] = [remove_dead_nodes, make_empty_values_constant, FoldConstants(), share_equal_values]
    if attention:
        found_by = (MergeTransposes(), MergeReshapes(), TransposeBetweenReshapes(), MergeCasts(), RecognizeAttention())
        passes.append(Rewrite("recognize attention", found_by, note))
    passes += [Rewrite("simplify", (*ARITHMETIC, *VIEWS, MoveSlice()), note), FoldConstants()]
    if merge:
        passes.append(MergeProducts(note, copy_parts=copy_parts))
    if merge_convolutions:
        passes.append(MergeConvolutions(note, copy_parts=copy_parts))
    if channels_last:
        passes += [put_channels_last, Rewrite("merge views", VIEWS, note), FoldConstants()]
    if channels_last and pad_channels:
        passes.append(Rewrite("pad channels", (PadChannels(pad_channels),), note))
    if align_products:
        passes.append(Rewrite("align products", (AlignProducts(),), note))
    return (*passes, share_equal_values, remove_dead_nodes)


def pass_name(p: Pass) -> str:
    """How a pass is called in dumps."""
    return getattr(p, "name", None) or getattr(p, "__name__", None) or type(p).__name__


def run_passes(graph: Graph, passes: Sequence[Pass], observe: Observe | None = None) -> Graph:
    """The graph after all passes; `observe` sees it after each, with the pass's name."""
    for p in passes:
        graph = p(graph)
        if observe is not None:
            observe(pass_name(p), graph)
    return graph
